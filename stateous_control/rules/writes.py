"""What an outcome saves beside its event: keys of the token's context, and timers. Checked whole, then applied whole.

Values are merged as the texts they came as; they are decoded only where a context model has to see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Schedule

from stateous_control.graph.document import OWN_EVENTS, Machine
from stateous_control.graph.reading import duration_s
from stateous_control.graph.schema import check_context, check_payload
from stateous_control.rules.book import Book, Token
from stateous_control.rules.moves import set_timer, values_of


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes that were checked: the new `values`, the whole context `merged` with them, and the timers to set."""

    values: Mapping[str, Raw]
    merged: dict[str, Raw]
    schedules: Sequence[Schedule]


def check_writes(
    machine: Machine, token: Token, context: Raw | None, schedules: Sequence[Schedule] | None
) -> Writes:
    """Check the merged context, then each schedule (A.6). A context that stands needs no second look.

    Raises Refused: INVALID_CONTEXT, INVALID_PAYLOAD for a timer, INVALID_BODY for what is no duration.
    """
    values = values_of(context)
    merged = token.context
    if values:
        merged = {**merged, **values}
        check_context(machine, merged)
    for schedule in schedules or ():
        _check_schedule(machine, schedule)
    return Writes(values, merged, schedules or ())


def _check_schedule(machine: Machine, schedule: Schedule) -> None:
    event = schedule.event
    if event in OWN_EVENTS or event not in machine.events:
        raise Refused(
            Code.INVALID_PAYLOAD, f"a timer is for {event!r}; {machine.name!r} declares no such event"
        )
    try:
        check_payload(machine, event, schedule.payload)
    except Refused as refused:
        raise Refused(Code.INVALID_PAYLOAD, f"a timer cannot be set: {refused.sentence}") from None
    if duration_s(schedule.after) is None:
        raise Refused(Code.INVALID_BODY, f"'after' of a schedule is {schedule.after!r}, which is no duration")


def apply_writes(book: Book, token: Token, writes: Writes) -> None:
    """Save what was checked. Timers count from now, also those of an outcome that was held (B.5)."""
    if writes.values:
        token.context = writes.merged
        book.log(token, "context_changed", keys=sorted(writes.values))
    for schedule in writes.schedules:
        after_s = duration_s(schedule.after)
        assert after_s is not None
        set_timer(book, token, schedule.event, after_s, payload=schedule.payload)
