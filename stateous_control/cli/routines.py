"""The commands ``task start`` and ``task wait``: routines without a graph, for people and scripts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Raw

from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import URL_DEFAULT, AsJson, KeyFile, Url
from stateous_control.cli.screen import clean, document, say
from stateous_control.cli.tasks import Number

if TYPE_CHECKING:
    from stateous_control.cli.client import Client, Reply

_WAIT_S = "20"
_whole = msgspec.json.Decoder(dict[str, Raw]).decode
_FINAL = ("completed", "failed", "expired", "cancelled")


def start(
    routine: Annotated[str, typer.Argument(metavar="ROUTINE", help="The routine's name.")],
    given: Annotated[str, typer.Argument(metavar="JSON", help="Its input.")] = "null",
    version: Annotated[int, typer.Option(help="The version of the routine that is to run.", min=1)] = 1,
    retries: Annotated[int, typer.Option(help="How often it is tried again.", min=0, max=1000)] = 0,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key and input start nothing again.")
    ] = None,
    is_waiting: Annotated[bool, typer.Option("--wait", help="Wait for its end, and exit by that.")] = False,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> int:
    """Start a routine that has no token, with an input."""
    from stateous_control.cli.client import connected
    from stateous_control.cli.steering import key_header, once

    body = {"routine": routine, "version": version, "retries": retries, "input": _json(given)}
    headers = key_header(idempotency_key)
    with connected(url, key_file) as client:
        send = partial(client.post, "/tasks", body, headers)
        reply = once(send, "whether the routine was started is not known: see task list")
        if is_waiting:
            reply = _ended(client, reply.value["task"])
    _tell(reply, as_json=as_json)
    return _exit_of(reply.value) if is_waiting else Exit.OK


def wait(number: Number, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> int:
    """Wait until a task has ended. Exit 0 when it completed, else 1; a routine's result is printed."""
    from stateous_control.cli.client import connected

    with connected(url, key_file) as client:
        reply = _ended(client, number)
    _tell(reply, as_json=as_json)
    return _exit_of(reply.value)


def _ended(client: Client, task: int) -> Reply:
    """Wait for the end of a task. Who is away is told of at once; an outage after that is waited out."""
    from stateous_control.cli.following import through_outages

    reply = client.get(f"/tasks/{task}")
    while reply.value["current_state"] not in _FINAL:
        reply = through_outages(partial(client.get, f"/tasks/{task}", {"wait": _WAIT_S}))
    return reply


def _tell(reply: Reply, *, as_json: bool) -> None:
    view = reply.value
    if as_json:
        document(reply.text)
    elif view["current_state"] == "completed" and "result" in view:
        # As the text it came as: nobody re-writes a user's numbers.
        print(bytes(_whole(reply.text)["result"]).decode(), flush=True)
    else:
        why = f" ({view['watchdog_stop_reason']})" if view["watchdog_stop_reason"] else ""
        error = f": {view['error']}" if view.get("error") else ""
        say(clean(f"task {view['task']} is {view['current_state']}{why}{error}"))


def _exit_of(view: dict[str, Any]) -> int:
    return Exit.OK if view["current_state"] == "completed" else Exit.FAILED


def _json(text: str) -> Raw:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Failure(Exit.USAGE, f"the input is no JSON: {error}") from None
    return Raw(text.encode())
