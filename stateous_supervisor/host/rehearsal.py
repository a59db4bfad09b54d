"""A task that no control plane gave out: what `try` and `stateous_supervisor.testing` run a routine with.

As a program (``python -P -m stateous_supervisor.host.rehearsal FOLDER``, started by `try`) it fills in the defaults of
a context and looks for the event, which only the folder's own `contract.py` knows: both come on stdin, the answer goes
to stdout.
"""

from __future__ import annotations

import importlib
import json
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from stateous_contract.messages import Asked, EnteredBy, Grant, encode

from stateous_supervisor.host.alias import install_alias
from stateous_supervisor.host.discovery import CONTRACT
from stateous_supervisor.host.folder import look_at
from stateous_supervisor.sdk.context import BaseContext
from stateous_supervisor.sdk.durable import FEATURE_MISSING, Reply
from stateous_supervisor.sdk.payloads import completed
from stateous_supervisor.sdk.values import json_text

TASK: Final = 1
OWN_EVENTS: Final = frozenset(
    {"__started__", "timeout", "error", "joined"}
)  # what a control plane itself makes
LEASE_S: Final = 86_400.0  # nobody waits for it to be renewed


def grant_of(
    *,
    state: str,
    context: Mapping[str, Any],
    memory: Mapping[str, Any],
    entered_by: EnteredBy | None,
    token: str,
    visit: int,
    attempt: int,
) -> Grant:
    """Return the grant of a made-up task for a state. Raises TypeError: context or memory is not JSON."""
    return Grant(
        task=TASK,
        token=token,
        state=state,
        visit=visit,
        attempt=attempt,
        context=Raw(json_text(dict(context), "the context").encode()),
        memory=Raw(json_text(dict(memory), "the memory").encode()),
        entered_by=entered_by,
        lease_s=LEASE_S,
    )


def routine_grant_of(
    *, routine: str, version: int, given: str | None, memory: Mapping[str, Any], attempt: int
) -> Grant:
    """Return the grant of a made-up task for a routine without a graph.

    Args:
        routine: its name.
        version: of the handler.
        given: its input, as JSON text; None for none.
        memory: what earlier attempts left.
        attempt: which one this is, from 1.

    Raises:
        TypeError: the memory is not JSON.
    """
    return Grant(
        task=TASK,
        routine=routine,
        version=version,
        input=UNSET if given is None else Raw(given.encode()),
        attempt=attempt,
        memory=Raw(json_text(dict(memory), "the memory").encode()),
        lease_s=LEASE_S,
    )


def entry(name: str, payload: str | None = None, error: str | None = None) -> EnteredBy:
    """Return the event that brought the token here. `payload` is JSON text, `error` the text of a failure."""
    return EnteredBy(
        name=name,
        payload=UNSET if payload is None else Raw(payload.encode()),
        error=UNSET if error is None else error,
    )


def reply(call: str, body: bytes) -> Reply:
    """Return what stands in for a control plane's answer to a durable call: steps pass, questions and waits park."""
    if call == "checkpoint":
        return Reply(200, bytes(msgspec.json.decode(body, type=dict[str, Raw])["value"]))
    if call == "ask":
        return Reply(201, asked(1, None), is_parked=True)
    if call in ("park", "diverged"):
        return Reply(200, b'{"status":"parked","generation":1}', is_parked=True)
    if call == "pause":
        return Reply(200, b'{"status":"ready"}')
    return Reply(501, encode({"code": FEATURE_MISSING, "error": f"there is no control plane for {call!r}"}))


def asked(number: int, answer: str | None) -> bytes:
    """Return the answer to an `ask`: the question with that number, and what was answered, as JSON text."""
    made = Asked(
        question=number,
        status="pending" if answer is None else "answered",
        parked=answer is None,
        generation=1,
        expires_at="",
        answer=UNSET if answer is None else Raw(answer.encode()),
    )
    return encode(made)


def models_in(contract: Any) -> list[Any]:
    """Return the context models that a contract names (``TicketContext = Context[Ticket]``), each once."""
    found: list[Any] = []
    for thing in vars(contract).values():
        origin, arguments = typing.get_origin(thing), typing.get_args(thing)
        if not (isinstance(origin, type) and issubclass(origin, BaseContext)) or not arguments:
            continue
        model = arguments[0]
        if model is not Any and not isinstance(model, typing.TypeVar) and model not in found:
            found.append(model)
    return found


def events_in(group: Any) -> set[str]:
    """Return the names of all events in a contract's class `events`, those of child workflows too."""
    found: set[str] = set()
    for thing in vars(group).values():
        if isinstance(thing, type):
            name = getattr(thing, "name", None)  # by its looks: the published package has classes of its own
            found |= {name} if isinstance(name, str) else events_in(thing)
    return found


def answer(folder: Path, context: dict[str, Any], event: str) -> dict[str, Any]:
    """Return what a folder's own `contract.py` makes of a rehearsal's terms.

    Args:
        folder: the supervisor's folder.
        context: as it was given.
        event: the name of what brought the token.

    Returns:
        ``{"context": …}``, as it came where there is no one model to go by; ``{"error": …}`` of a context that does
        not fit; ``{"events": […]}`` where there is no such event: those that there are.
    """
    found = look_at(folder)
    if found.faults or f"{CONTRACT}.py" not in found.files:
        return {"context": context}
    install_alias()
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(found.path))
    try:
        contract = importlib.import_module(CONTRACT)
        models, events = models_in(contract), events_in(contract.events)
    except Exception:  # It is the user's file; loading the folder says what is wrong with it.
        return {"context": context}
    if event not in events | OWN_EVENTS:
        return {"events": sorted(events | OWN_EVENTS)}
    try:
        return {"context": completed(models[0], context) if len(models) == 1 else context}
    except ValueError as error:
        return {"error": str(error)}


def main() -> None:
    """Answer for one folder."""
    given = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps(answer(Path(sys.argv[1]), given["context"], given["event"])))


if __name__ == "__main__":
    main()
