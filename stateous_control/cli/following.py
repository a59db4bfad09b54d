"""Follows one token until it ends, live. An outage meanwhile is waited out: the history is still there afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from stateous_control.cli.client import Client, quoted
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.screen import remark
from stateous_control.cli.story import ENDS

PAUSE_S: Final = 0.2
OUTAGE_S_MAX: Final = 300.0
PAGE: Final = 1_000

Entry = Mapping[str, Any]
Answer = TypeVar("Answer")


def read_history(client: Client, name: str, *, after: int = 0) -> list[dict[str, Any]]:
    """Return all entries after `after`, page by page; a control plane that knows no pages gives all at once."""
    entries: list[dict[str, Any]] = []
    while True:
        last = entries[-1]["seq"] if entries else after
        query = {"after": str(last), "limit": str(PAGE)}
        page = [
            each for each in client.get(f"/tokens/{quoted(name)}/history", query).value if each["seq"] > last
        ]
        entries += page
        if len(page) < PAGE:
            return entries


def follow(
    client: Client, name: str, show: Callable[[Entry], None]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Show each entry as it comes, until the token has ended; return the token and its history."""
    seen: list[dict[str, Any]] = []
    while not any(entry["kind"] in ENDS for entry in seen):
        after = seen[-1]["seq"] if seen else 0
        read = partial(read_history, client, name, after=after)
        fresh = through_outages(read) if seen else read()
        for entry in fresh:
            show(entry)
        seen += fresh
        if not fresh:
            time.sleep(PAUSE_S)
    token: dict[str, Any] = through_outages(partial(client.get, f"/tokens/{quoted(name)}")).value
    return token, seen


def exit_of(token: Mapping[str, Any]) -> Exit:
    """Return how a command ends that waited for this token."""
    return Exit.OK if token.get("status") == "completed" else Exit.FAILED


def through_outages(ask: Callable[[], Answer]) -> Answer:
    """Ask until there is an answer, for commands that wait anyway. Raises `Failure` (69) after `OUTAGE_S_MAX`."""
    patient = Retrying(
        retry=retry_if_exception(_is_outage),
        stop=stop_after_delay(OUTAGE_S_MAX),
        wait=wait_exponential(multiplier=PAUSE_S, max=2.0),
        before_sleep=_tell_once,
        reraise=True,
    )
    return patient(ask)


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, Failure) and error.exit_code is Exit.UNREACHED


def _tell_once(call: RetryCallState) -> None:
    error = call.outcome.exception() if call.outcome else None
    if call.attempt_number == 1 and isinstance(error, Failure):
        remark(f"{error.sentence}; trying again")
