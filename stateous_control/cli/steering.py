"""A person's change of a task, and what became of it where the answer was lost on its way (S1-84).

Each change names the generation that it is made for, so of a request and its repeat at most one is carried out. Which
one it was, or that it was somebody else's, is on record in the task's log (ADR 47).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.screen import clean, remark

if TYPE_CHECKING:
    from stateous_control.cli.client import Client, Reply

TRIES_MAX: Final = 5
_KINDS: Final = {
    "pause": frozenset({"pause_requested"}),
    "resume": frozenset({"resumed", "pause_withdrawn"}),
    "cancel": frozenset({"cancelled"}),
}
_OF_A_TOKEN: Final = (None, "token")
"""Whom the log names where nobody changed the task itself."""


def steer(
    client: Client, number: int, verb: str, generation: int | None, more: Mapping[str, object]
) -> Reply:
    """Change a task and return it as it stands then.

    Args:
        client: the control plane.
        number: the task.
        verb: pause, resume, cancel or retry; a retry's answer is the new task.
        generation: the one that a person has seen; None is that of now.
        more: what else the request says.

    Raises `Failure`: refused, or not reached, which says whether the change was made or that this is not known.
    """
    before = client.get(f"/tasks/{number}").value
    body = {"expected_generation": generation or before["generation"], **more}
    lost: Failure | None = None
    for _ in range(TRIES_MAX):
        try:
            return client.post(f"/tasks/{number}/{verb}", body)
        except Failure as failure:
            lost = failure if failure.exit_code is Exit.UNREACHED else lost
            if lost is None:
                raise
            found = _found(client, before, verb, more, lost)
            if found is not None:
                return found
            if failure is not lost:
                raise
    assert lost is not None
    raise _unknown(before, verb, lost)


def _found(
    client: Client, before: Mapping[str, Any], verb: str, more: Mapping[str, object], lost: Failure
) -> Reply | None:
    """Return the task as it stands if the change is on record; None if it is not."""
    try:
        now = client.get(f"/tasks/{before['task']}")
        if verb == "retry":
            return _retry_of(client, before, now.value, more)
        by = _changed_by(client, before, verb)
    except Failure as failure:
        if failure.exit_code is not Exit.UNREACHED:
            raise
        raise _unknown(before, verb, lost) from None
    if by in _OF_A_TOKEN:
        return None
    _tell(verb, by, more)
    return now


def _changed_by(client: Client, before: Mapping[str, Any], verb: str) -> str | None:
    """Return who made such a change since the task was seen."""
    entries = client.get(f"/tasks/{before['task']}/log", {"limit": "1000"}).value["entries"]
    for entry in entries:
        if entry["sequence_num"] > before["log_count"] and entry["kind"] in _KINDS[verb]:
            by: str | None = entry["data"].get("by")
            return by
    return None


def _retry_of(
    client: Client, before: Mapping[str, Any], now: Mapping[str, Any], more: Mapping[str, object]
) -> Reply | None:
    """Return the task that retries this one since it was seen."""
    fresh = now.get("retried_as")
    if fresh is None or "retried_as" in before:
        return None
    reply = client.get(f"/tasks/{fresh}")
    if "token" in more and reply.value.get("token") != more["token"]:
        return None
    first = client.get(f"/tasks/{fresh}/log", {"limit": "1", "cursor": "2"}).value["entries"][0]
    _tell("retry", first["data"].get("by"), more)
    return reply


def _tell(verb: str, by: str | None, more: Mapping[str, object]) -> None:
    if by != more.get("actor"):
        remark(f"the answer was lost on its way; the {verb} is on record, by {clean(by)}")


def _unknown(before: Mapping[str, Any], verb: str, lost: Failure) -> Failure:
    sentence = f"{lost.sentence}; whether the {verb} was made is not known: see task log {before['task']}"
    return Failure(lost.exit_code, sentence, code=lost.code)
