"""`try`: one routine, once, in a real host process, with no control plane behind it.

The host is the same program that `run` starts, so user code can hurt nothing here either. What the routine says is
shown as it comes; its outcome is shown as it would be reported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import typer
from msgspec import Raw
from stateous_contract.messages import EnteredBy, Grant, encode

from stateous_supervisor.agent import config
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.host import Host, HostEnded, HostUnusable, where
from stateous_supervisor.agent.host_process import ProcessHosts
from stateous_supervisor.cli import options
from stateous_supervisor.host.rehearsal import LEASE_S, TASK, entry, grant_of, reply, routine_grant_of
from stateous_supervisor.link import frames

COMPLETING_S: Final = 30.0
ROUTINE: Final = "@"

MakeGrant = Callable[[frames.RoutineFacts], Grant]
Show = Callable[[frames.ToAgent], None]


def try_(
    folder_path: options.Folder,
    state: Annotated[
        str,
        typer.Argument(
            help="The state whose routine is run, or @ and the name of one without a graph.",
            metavar="STATE|@NAME",
        ),
    ],
    context: Annotated[
        str,
        typer.Option(help="The token's context: JSON, or a file with it (- is stdin).", metavar="JSON|FILE"),
    ] = "{}",
    given: Annotated[
        str | None,
        typer.Option(
            "--input", help="The input of a routine without a graph: JSON, or a file.", metavar="JSON|FILE"
        ),
    ] = None,
    event: Annotated[
        str,
        typer.Option(
            help="The event that brought the token here, perhaps with payload.", metavar="NAME[:JSON]"
        ),
    ] = "__started__",
    memory: Annotated[
        str, typer.Option(help="What earlier attempts left: JSON, or a file with it.", metavar="JSON|FILE")
    ] = "{}",
    attempt: Annotated[int, typer.Option(min=1, help="Which attempt this is.", metavar="NUMBER")] = 1,
    visit: Annotated[int, typer.Option(min=1, help="How often the state was entered.", metavar="NUMBER")] = 1,
    token: Annotated[str, typer.Option(help="The token's id.", metavar="ID")] = "try",  # noqa: S107
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    """Run one routine once, here, and show what it would report.

    No control plane is asked. Notes, writes and the outcome go to stdout, what the routine prints and its traceback
    to stderr. Ends with 1 if the outcome is a failure.
    """
    settings = config.load(folder_path, flags={"python": python}, environment=os.environ)
    text = _input(given, state)
    rest: dict[str, Any] = {"memory": json_object(memory, "--memory"), "attempt": attempt}
    make: MakeGrant = partial(_grant_of_routine, given=text, **rest)
    if not state.startswith(ROUTINE):
        rest |= {"context": json_object(context, "--context"), "entered_by": _event(event)}
        make = partial(_grant_of_state, settings, token=token, visit=visit, **rest)
    shown = _Shown(is_quiet=as_json)
    outcome = anyio.run(_rehearse, settings, state, make, shown)
    document = _document(shown, outcome)
    if as_json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _show_outcome(document)
    if outcome.traceback:
        print(outcome.traceback.rstrip(), file=sys.stderr)
    raise typer.Exit(Exit.ABANDONED if document["outcome"] == "failed" else Exit.DONE)


def _grant_of_state(
    settings: config.Config,
    facts: frames.RoutineFacts,
    *,
    context: dict[str, Any],
    entered_by: EnteredBy,
    **rest: Any,
) -> Grant:
    whole = _completed(settings, context, entered_by.name)
    return grant_of(state=facts.state, context=whole, entered_by=entered_by, **rest)


def _grant_of_routine(facts: frames.RoutineFacts, **rest: Any) -> Grant:
    name = facts.state.removeprefix(ROUTINE)
    return routine_grant_of(routine=name, version=max(facts.versions), **rest)


class _Shown:
    """What the routine said, kept, and shown as it comes unless it is to be one document."""

    def __init__(self, *, is_quiet: bool) -> None:
        self.notes: list[str] = []
        self.memory: dict[str, Any] = {}
        self.steps: dict[str, Any] = {}
        self.question: dict[str, Any] | None = None
        self.wait: dict[str, Any] | None = None
        self._is_quiet = is_quiet

    def __call__(self, message: frames.ToAgent) -> None:
        match message:
            case frames.Noted():
                self.notes.append(message.text)
                self._line("note", message.text)
            case frames.Remembered():
                value = json.loads(bytes(message.value))
                self.memory[message.key] = value
                self._line(
                    "memory",
                    f"{message.key} = {_json(value)}" if value is not None else f"{message.key} is forgotten",
                )
            case frames.Call():
                self._call(message.call, json.loads(bytes(message.body)))
            case frames.Logged():
                print(message.text, file=sys.stderr)
            case _:
                pass

    def _call(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "checkpoint":
            point = f"{body['step']}#{body['occurrence']}"
            self.steps[point] = body["value"]
            self._line("step", f"{point} = {_json(body['value'])}")
        elif kind == "park":
            self.wait = body["wait"]
            self._line("wait", f"{body['step']}#{body['occurrence']} {_json(self.wait)}")
        elif kind == "ask":
            self.question = {name: body[name] for name in body if name != "locked_decisions"}
            self._line("question", f"{body['key']}#{body['occurrence']} {_json(body['data'])}")

    def _line(self, kind: str, text: str) -> None:
        if not self._is_quiet:
            print(f"{kind:<9}{text}", flush=True)


async def _rehearse(settings: config.Config, state: str, make: MakeGrant, show: Show) -> frames.Outcome:
    """Run a routine in a host and return its outcome; the death of the host is one too."""
    source = ProcessHosts(
        settings.python,
        settings.folder,
        printed=lambda _, line: print(line, file=sys.stderr),
        environment=os.environ,
    )
    try:
        async with source.open(1) as host:
            grant = await anyio.to_thread.run_sync(make, _find(host, state))
            own = settings.routines.get(state, config.RoutineSettings())
            run = frames.Run(
                grant=Raw(encode(grant)),
                lease_s=LEASE_S,
                timeout_s=own.timeout_s,
                confinement=own.confinement,
            )
            host.send([run])
            return await _outcome(host, show)
    except HostUnusable as unusable:
        raise Fault(Exit.CONFIG, unusable.sentence) from None
    except HostEnded as ended:
        error = f"the routine ended its host: {ended.reason}"
        return frames.Outcome(task=TASK, attempt=1, outcome="failed", error=error)


async def _outcome(host: Host, show: Show) -> frames.Outcome:
    while True:
        for message in await host.receive():
            if isinstance(message, frames.Outcome):
                return message
            if isinstance(message, frames.Call):
                host.send([_answer(message)])
            show(message)


def _answer(call: frames.Call) -> frames.Answer:
    """Stand in for a control plane: steps are passed, a question parks the routine."""
    made = reply(call.call, bytes(call.body))
    return frames.Answer(
        id=call.id,
        task=call.task,
        attempt=call.attempt,
        status=made.status,
        body=Raw(made.body),
        is_parked=made.is_parked,
    )


def _find(host: Host, state: str) -> frames.RoutineFacts:
    """Return the newest routine for a state. A folder with faults is refused, other broken files are only told."""
    if host.faults:
        raise Fault(Exit.CONFIG, "\n".join(host.faults))
    mine = [routine for routine in host.routines if routine.state == state]
    broken = [f"{where(file)}: {file.error}" for file in host.broken]
    if mine:
        for sentence in broken:
            print(f"warning: {sentence}", file=sys.stderr)
        return max(mine, key=lambda facts: max(facts.versions))
    what = "routine" if state.startswith(ROUTINE) else "routine for the state"
    if broken:
        raise Fault(Exit.CONFIG, "\n".join([f"there is no {what} '{state}'", *broken]))
    states = ", ".join(sorted({routine.state for routine in host.routines}))
    raise Fault(Exit.USAGE, f"there is no {what} '{state}'; there is one for: {states}")


def _input(given: str | None, state: str) -> str | None:
    """Return the JSON text of a routine's input: what is given, or what is in the file of that name.

    Raises:
        Fault: it is neither, or it is given for a state (64).
    """
    if given is None:
        return None
    if not state.startswith(ROUTINE):
        raise Fault(Exit.USAGE, "'--input' is for routines without a graph (@NAME); a state has '--context'")
    try:
        text = sys.stdin.read() if given == "-" else Path(given).read_text("utf-8")
    except (OSError, ValueError):
        text = given
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Fault(Exit.USAGE, f"'--input' is neither JSON nor a file with it: {error}") from None
    return text


def json_object(given: str, option: str) -> dict[str, Any]:
    """Return the JSON object that an option gives, as text or as a file's name.

    Raises:
        Fault: it is none, or the file cannot be read (64).
    """
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = sys.stdin.read() if given == "-" else Path(given).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Fault(
                Exit.USAGE, f"'{option}' is neither a JSON object nor a file: {given}: {why.lower()}"
            ) from None
    return _object(text, option)


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Fault(Exit.USAGE, f"'{option}' is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Fault(Exit.USAGE, f"'{option}' is {type(found).__name__}; it must be a JSON object")
    return found


def _event(given: str) -> EnteredBy:
    """Return the entry that NAME or NAME:JSON describes; of the event `error` the rest is its text."""
    name, colon, rest = given.partition(":")
    if not colon:
        return entry(name)
    if name == "error":
        return entry(name, error=rest)
    return entry(name, json.dumps(_object(rest, "--event")))


def _completed(settings: config.Config, given: dict[str, Any], event: str) -> dict[str, Any]:
    """Return the context as a control plane would have it: with the defaults of the folder's model.

    Raises:
        Fault: it does not fit, or the folder's contract has no such event (64).
    """
    command = [settings.python, "-P", "-m", "stateous_supervisor.host.rehearsal", str(settings.folder)]
    terms = {"context": given, "event": event}
    try:
        done = subprocess.run(
            command, input=json.dumps(terms), capture_output=True, text=True, timeout=COMPLETING_S, check=True
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        answer = {"context": given}  # the host, which starts next under the same interpreter, says why
    if "events" in answer:
        allowed = ", ".join(answer["events"])
        raise Fault(Exit.USAGE, f"'--event' is '{event}'; the contract has no such event, it has {allowed}")
    if "error" in answer:
        raise Fault(Exit.USAGE, f"'--context': {answer['error']}")
    completed: dict[str, Any] = answer["context"]
    return completed


def _document(shown: _Shown, outcome: frames.Outcome) -> dict[str, Any]:
    document: dict[str, Any] = {"outcome": outcome.outcome, "event": outcome.event}
    for name, raw in (("payload", outcome.payload), ("context", outcome.context), ("result", outcome.result)):
        document[name] = None if raw is None else json.loads(bytes(raw))
    document["schedules"] = json.loads(encode(outcome.schedules or []))
    document |= {"notes": shown.notes, "memory": shown.memory, "error": outcome.error}
    document |= {"steps": shown.steps, "question": shown.question, "wait": shown.wait}
    return {**document, "duration_s": round(outcome.duration_s, 4)}


def _show_outcome(document: dict[str, Any]) -> None:
    for key, value in (document["context"] or {}).items():
        print(f"context  {key} = {_json(value)}")
    for timer in document["schedules"]:
        payload = f" {_json(timer['payload'])}" if "payload" in timer else ""
        print(f"timer    {timer['event']}{payload} after {timer['after']}")
    payload = "" if document["payload"] is None else f" {_json(document['payload'])}"
    told = {"event": f"event {document['event']}{payload}", "waiting": "waiting for an event from outside"}
    told["returned"] = f"returned {_json(document['result'])}"
    told["parked"] = f"parked until {'its wait is over' if document['wait'] else 'the question is answered'}"
    text = told.get(document["outcome"]) or f"failed: {document['error']}"
    print(f"outcome  {text}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
