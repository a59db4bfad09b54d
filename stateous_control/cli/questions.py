"""The commands ``question …``: what waits for a person's answer, and the answer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stateous_control.cli.digits import written
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import URL_DEFAULT, AsJson, KeyFile, Url
from stateous_control.cli.paging import actor, asked, withheld
from stateous_control.cli.screen import clean, document, remark, say, table

if TYPE_CHECKING:
    from msgspec import Raw

    from stateous_control.cli.client import Client, Reply

app = typer.Typer(no_args_is_help=True, help="Questions that tasks ask people.")

Number = Annotated[int, typer.Argument(metavar="QUESTION", help="The question's number.", min=1)]
TRIES_MAX: Final = 5
LOOK_S: Final = 1.0


@app.command("list")
def list_(
    status: Annotated[
        str, typer.Option(help="pending, answered, expired or closed; any for all of them.")
    ] = "pending",
    task: Annotated[int | None, typer.Option(help="Only those of this task.")] = None,
    token: Annotated[str | None, typer.Option(help="Only those of this token.")] = None,
    limit: Annotated[int, typer.Option(help="How many to show, 1 to 1000.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where an earlier list stopped.")] = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List questions, newest first; by default those that are open."""
    from stateous_control.cli.client import connected

    wanted = None if status == "any" else status
    with connected(url, key_file) as client:
        reply = client.get(
            "/questions", asked(status=wanted, task=task, token=token, limit=limit, cursor=cursor)
        )
    if as_json:
        document(reply.text)
        return
    table(
        ("QUESTION", "TASK", "TOKEN", "STATE", "KEY", "STATUS", "EXPIRES"),
        [
            (each["question"], each["task"], each.get("token", "-"), _place(each), _key(each), each["status"],
             each["expires_at"])
            for each in reply.value["entries"]
        ],
    )  # fmt: skip
    withheld(reply.value)


@app.command()
def show(number: Number, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show a question: what is asked, what may be answered, and what was."""
    from stateous_control.cli.client import connected

    with connected(url, key_file) as client:
        reply = client.get(f"/questions/{number}")
    if as_json:
        document(reply.text)
        return
    _show(reply.value, reply.text)


@app.command()
def answer(
    number: Number,
    value: Annotated[str, typer.Argument(metavar="ANSWER", help="JSON; what is no JSON is taken as a text.")],
    is_text: Annotated[
        bool, typer.Option("--text", help="Take it as a text, also where it would be JSON.")
    ] = False,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question. The task that waits for it goes on by itself."""
    from stateous_control.cli.client import connected

    given = _value(value, is_text=is_text)
    with connected(url, key_file) as client:
        reply = _answer(client, number, given)
    if as_json:
        document(reply.text)
        return
    view = reply.value
    say(
        f"question {view['question']} answered by {clean(view['answered_by'])}: {clean(_text(reply.text, 'answer'))}"
    )


@app.command()
def watch(url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show open questions as they come, until Ctrl-C. With --json one document a line."""
    from stateous_control.cli.client import connected
    from stateous_control.cli.following import through_outages

    seen: set[int] = set()
    with connected(url, key_file) as client:
        found = _open(client)
        while True:
            for question in reversed(found):
                if question["question"] not in seen:
                    seen.add(question["question"])
                    _tell(question, as_json=as_json)
            time.sleep(LOOK_S)
            found = through_outages(partial(_open, client))


def _open(client: Client) -> list[dict[str, Any]]:
    """Return every open question, newest first, over all pages."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get("/questions", asked(status="pending", limit=1000, cursor=cursor)).value
        found += page["entries"]
        cursor = page.get("cursor")
        if cursor is None:
            return found


def _tell(question: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(written(question), flush=True)
    else:
        print(
            clean(
                f"{question['question']}  {question.get('token') or _place(question)}: {_key(question)}, "
                f"until {question['expires_at']}"
            ),
            flush=True,
        )


def _answer(client: Client, number: int, value: Raw) -> Reply:
    """Answer with the generation as it is now. Who pauses the task meanwhile does not stand in the way.

    Where nothing comes back, what is on record then says whether the answer was stored (S1-84).
    """
    lost: Failure | None = None
    for tries in range(TRIES_MAX):
        reply = _look(client, number, lost)
        if lost is not None and _has(reply, value):
            return reply
        body = {"answer": value, "expected_generation": reply.value["generation"], "actor": actor()}
        try:
            return client.post(f"/questions/{number}/answer", body)
        except Failure as failure:
            lost = failure if failure.exit_code is Exit.UNREACHED else lost
            if failure.code != "stale_generation" and failure is not lost:
                raise
            if tries == TRIES_MAX - 1:
                raise _unknown(number, failure) if failure is lost else failure from None
    raise AssertionError("the last try returns or raises")


def _look(client: Client, number: int, lost: Failure | None) -> Reply:
    try:
        return client.get(f"/questions/{number}")
    except Failure as failure:
        if lost is None or failure.exit_code is not Exit.UNREACHED:
            raise
        raise _unknown(number, lost) from None


def _has(reply: Reply, value: Raw) -> bool:
    """Return whether a question is answered with just this."""
    from stateous_control.cli.digits import read

    return reply.value["status"] == "answered" and written(reply.value["answer"]) == written(
        read(bytes(value))
    )


def _unknown(number: int, failure: Failure) -> Failure:
    sentence = f"{failure.sentence}; whether the answer is stored is not known: see question show {number}"
    return Failure(failure.exit_code, sentence, code=failure.code)


def _value(text: str, *, is_text: bool) -> Raw:
    """Return what was typed as JSON text, digits as they are."""
    import json

    from msgspec import Raw
    from stateous_contract.scan import Malformed, read

    if not is_text:
        try:
            return Raw(read(text.encode())[0] if text.strip() else b'""')
        except Malformed:
            if text.lstrip()[:1] in ("{", "[", '"'):
                raise Failure(
                    Exit.USAGE, "the answer begins like JSON and is none; --text takes it as it is"
                ) from None
        except UnicodeEncodeError:
            raise Failure(Exit.USAGE, "the answer is not UTF-8 text") from None
    return Raw(json.dumps(text, ensure_ascii=False).encode())


def _show(view: dict[str, Any], text: str) -> None:
    say(
        clean(
            f"question {view['question']} of task {view['task']} "
            f"({view.get('token', '-')}, {_place(view)}): {_key(view)}"
        )
    )
    say(clean(f"{view['status']}, asked at {view['asked_at']}, expires at {view['expires_at']}"))
    for name in ("data", "choices", "schema", "answer"):
        if name in view:
            say(f"  {name}: {clean(_text(text, name))}")
    if "answered_by" in view:
        say(clean(f"answered by {view['answered_by']} at {view['answered_at']}"))
    elif "cause" in view:
        say(clean(f"ended unanswered: {view['cause']}"))
    elif view["status"] == "pending":
        remark(f"answer it with: stateous-control question answer {view['question']} ANSWER")


def _text(text: str, name: str) -> str:
    """Return a field of a document as the text that it is there, so that no digit changes."""
    import msgspec
    from msgspec import Raw

    return bytes(msgspec.json.decode(text, type=dict[str, Raw])[name]).decode()


def _place(view: dict[str, Any]) -> str:
    """Return the state that asks, or the routine."""
    return str(view.get("state") or view["routine"])


def _key(view: dict[str, Any]) -> str:
    return str(view["key"]) + (f" #{view['occurrence']}" if view["occurrence"] > 1 else "")
