"""A person's change of a task or a token, and what became of it where the answer was lost on its way (S1-84).

A change of a task names the generation that it is made for, so of a request and its repeat at most one is carried out.
Which one it was, or that it was somebody else's, is on record in the task's log (ADR 47). A token has no generation:
what its history does not have is not repeated. An event goes by a key, and is fired once however often it is sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

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
_TOKEN_KINDS: Final = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}
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
    return also(lost, f"whether the {verb} was made is not known: see task log {before['task']}")


def steer_token(client: Client, name: str, verb: str) -> Reply:
    """Pause, resume or cancel a token and return it as it stands then.

    Raises `Failure`: refused, or not reached, which says that the history does not have the change, or that nobody
    could be asked. The history names nobody, so a change that stands there may be that of somebody else.
    """
    from stateous_control.cli.client import quoted

    path = f"/tokens/{quoted(name)}"
    seen = _length(client, path)
    try:
        return client.post(f"{path}/{verb}")
    except Failure as failure:
        if not failure.may_be_heard:
            raise
        lost = failure
    try:
        now = _token_after(client, name, verb, seen)
    except Failure as failure:
        if failure.exit_code is not Exit.UNREACHED:
            raise
        raise also(lost, f"whether the {verb} was made is not known: see token history {name}") from None
    if now is None:
        raise also(lost, f"the {verb} is not on record so far: see token history {name} before you repeat it")
    remark(f"the answer was lost on its way; the {verb} is on record")
    return now


def _length(client: Client, path: str) -> int:
    """Return the number of the last entry in a token's history."""
    from stateous_control.cli.client import LIST_TYPE

    value = client.get(f"{path}/history", {"limit": "1"}, accept=LIST_TYPE).value
    entries = value["entries"] if isinstance(value, dict) else value
    length: int = entries[-1]["seq"]
    return length


def _token_after(client: Client, name: str, verb: str, seen: int) -> Reply | None:
    """Return the token as it stands if such a change is newer than what was seen; None if it is not."""
    from stateous_control.cli.client import quoted
    from stateous_control.cli.following import read_history

    if all(entry["kind"] != _TOKEN_KINDS[verb] for entry in read_history(client, name, after=seen)):
        return None
    return client.get(f"/tokens/{quoted(name)}")


def fire(client: Client, name: str, event: str, body: Mapping[str, object], key: str | None) -> Reply:
    """Fire an event once, by `key` or one of our own; a lost answer is asked for again by the same key.

    Raises `Failure`: refused, or not reached, which says where it is not known whether the event was fired.
    """
    from stateous_control.cli.client import quoted

    path = f"/tokens/{quoted(name)}/events/{quoted(event)}"
    send = partial(client.post, path, body, key_header(key))
    reply = once(send, f"whether {event} was fired is not known: see token history {name}")
    return _plain(reply) if key is None else reply


def once(send: Callable[[], Reply], unknown: str) -> Reply:
    """Send what does nothing twice, and once more where the answer is lost; `unknown` says where to look then.

    Raises `Failure`: refused or not reached.
    """
    try:
        return send()
    except Failure as lost:
        if not lost.may_be_heard:
            raise
    try:
        return send()
    except Failure as failure:
        if failure.exit_code is not Exit.UNREACHED:
            raise
        raise also(failure, unknown) from None


def key_header(key: str | None) -> dict[str, str]:
    """Return the header of an idempotency key: the one that a person gave, else a new one."""
    return {"Idempotency-Key": secrets.token_hex(16) if key is None else key}


def _plain(reply: Reply) -> Reply:
    """Return the answer that was lost, from that to its repeat."""
    from stateous_control.cli.client import Reply

    if not reply.value.get("duplicate"):
        return reply
    token = msgspec.json.decode(reply.text, type=dict[str, msgspec.Raw])["token"]
    return Reply(reply.status, bytes(token).decode(), reply.value["token"])


def also(lost: Failure, sentence: str) -> Failure:
    """Return a failure that also says what is not known of what was asked for."""
    return Failure(lost.exit_code, clean(f"{lost.sentence}; {sentence}"), code=lost.code)
