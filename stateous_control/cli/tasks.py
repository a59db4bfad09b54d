"""The commands ``task …``: what tasks do, what happened to them, and a person's hand on them.

The generation that guards each change is read right before it, so that nobody has to type it; `--generation` names the
one that a person has seen, and then the change is refused if anything has happened since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stateous_control.cli.digits import written
from stateous_control.cli.options import URL_DEFAULT, AsJson, KeyFile, Url
from stateous_control.cli.paging import actor, asked, withheld
from stateous_control.cli.screen import clean, document, remark, say, table

app = typer.Typer(no_args_is_help=True, help="See tasks, and pause, resume, cancel or retry them.")

Number = Annotated[int, typer.Argument(metavar="TASK", help="The task's number.", min=1)]
Generation = Annotated[int | None, typer.Option(help="Only if the task is still at this generation.", min=1)]


@app.command("list")
def list_(
    current_state: Annotated[
        str | None,
        typer.Option("--is", help="pending, running, parked, completed, failed, expired or cancelled."),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Only those of this token.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those of this state of the workflow.")] = None,
    reason: Annotated[
        str | None, typer.Option(help="Only with this kind of stop reason, such as user_paused.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to show, 1 to 1000.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where an earlier list stopped.")] = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List tasks, newest first."""
    from stateous_control.cli.client import connected

    wanted = asked(
        current_state=current_state, token=token, state=state, reason=reason, limit=limit, cursor=cursor
    )
    with connected(url, key_file) as client:
        reply = client.get("/tasks", wanted)
    if as_json:
        document(reply.text)
        return
    table(
        ("TASK", "TOKEN", "STATE", "IS", "WHY", "ATTEMPT", "SUPERVISOR"),
        [
            (
                each["task"],
                each.get("token", "-"),
                each.get("state") or each["routine"],
                each["current_state"],
                _why(each),
                each["attempt"],
                each.get("supervisor", "-"),
            )
            for each in reply.value["entries"]
        ],
    )
    withheld(reply.value)


def _why(task: Mapping[str, Any]) -> str:
    served = f"nobody serves version {task['version']}" if task.get("unroutable") else None
    told = (task["watchdog_stop_reason"], task.get("pausing"), served)
    return ", ".join(each for each in told if each) or "-"


@app.command()
def show(number: Number, url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show a task: what it does, why it stands still, who runs it."""
    from stateous_control.cli.client import connected

    with connected(url, key_file) as client:
        reply = client.get(f"/tasks/{number}")
    if as_json:
        document(reply.text)
        return
    _show(reply.value)


@app.command()
def log(
    number: Number,
    limit: Annotated[int, typer.Option(help="How many lines to show, 1 to 1000.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Only lines before this number.")] = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened to a task: the newest lines, in order."""
    from stateous_control.cli.client import connected

    with connected(url, key_file) as client:
        reply = client.get(f"/tasks/{number}/log", asked(limit=limit, cursor=cursor))
    if as_json:
        document(reply.text)
        return
    for entry in reply.value["entries"]:
        told = " ".join(f"{name}={_short(value)}" for name, value in entry["data"].items())
        say(clean(f"{entry['at'][:19]}Z  #{entry['sequence_num']}  {entry['kind']}  {told}"))
    withheld(reply.value)


@app.command()
def pause(
    number: Number,
    generation: Generation = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask a task to pause after its current step. Nothing that runs is interrupted."""
    _steer(number, "pause", generation, url, key_file, as_json=as_json)


@app.command()
def resume(
    number: Number,
    generation: Generation = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a paused task go on, or take back a pause that was asked for."""
    _steer(number, "resume", generation, url, key_file, as_json=as_json)


@app.command()
def cancel(
    number: Number,
    generation: Generation = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """End a task for good, and its token with it."""
    _steer(number, "cancel", generation, url, key_file, as_json=as_json)


@app.command()
def retry(
    number: Number,
    token: Annotated[str | None, typer.Option(help="The id of the new token.")] = None,
    is_fresh: Annotated[
        bool, typer.Option("--fresh", help="Leave finished steps and answers behind, and do all of it again.")
    ] = False,
    generation: Generation = None,
    url: Url = URL_DEFAULT,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Begin anew where a task failed, expired or was cancelled: a new task, of a new token where it had one."""
    more = asked(token=token) | {"checkpoints": not is_fresh}
    _steer(number, "retry", generation, url, key_file, as_json=as_json, more=more)


def _steer(
    number: int,
    verb: str,
    generation: int | None,
    url: str,
    key_file: Any,
    *,
    as_json: bool,
    more: Mapping[str, object] | None = None,
) -> None:
    from stateous_control.cli.client import connected
    from stateous_control.cli.steering import steer

    with connected(url, key_file) as client:
        reply = steer(client, number, verb, generation, {"actor": actor(), **(more or {})})
    if as_json:
        document(reply.text)
        return
    say(_line(reply.value))


def _line(view: Mapping[str, Any]) -> str:
    why = f" ({view['watchdog_stop_reason']})" if view["watchdog_stop_reason"] else ""
    pausing = f", {view['pausing']}" if view.get("pausing") else ""
    of = (
        f" of {view['token']}"
        if "token" in view
        else f" of task {view['parent']}"
        if "parent" in view
        else ""
    )
    return clean(
        f"task {view['task']}{of}: {view.get('state') or view['routine']}, "
        f"{view['current_state']}{why}{pausing}"
    )


def _show(view: Mapping[str, Any]) -> None:
    say(_line(view))
    budget = f"{view['failures']} failed of {view['retries'] + 1}"
    say(f"attempt {view['attempt']}, {budget}; generation {view['generation']}")
    if view["releases"] or view["given_back"]:
        say(
            f"given back {view['given_back']} times, and {view['releases']} times because a host or agent died"
        )
    if "supervisor" in view:
        say(clean(f"run by {view['supervisor']} until {view.get('lease_until')}"))
    for name, words in (("ready_at", "ready at"), ("expires_at", "expires at"), ("retried_from", "retries task"),
                        ("retried_as", "retried as task")):  # fmt: skip
        if name in view:
            say(clean(f"{words} {view[name]}"))
    if view.get("error"):
        say(clean(f"error: {_short(view['error'])}"))
    if "result" in view:
        say(clean(f"result: {_short(view['result'])}"))
    if "question" in view:
        remark(f"it waits for an answer: stateous-control question show {view['question']}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else written(value)
    return text if len(text) <= 120 else text[:119] + "…"
