"""The loop that delivers: notes, memory writes and reports, until the control plane has them or refuses them.

With `batch`, everything that is there goes out in one request and the next one gathers what came meanwhile;
without it, each attempt has its own calls, several attempts at a time. An attempt's messages keep their
order, and one that waits holds up only its own attempt (A-36, A-37): where a whole request got no answer, halves of
it are sent, and the attempt that is found to be to blame goes on alone, beside the others. Called by the roster;
answers go back to it by `settle`.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from stateous_contract.messages import TaskMessage

from stateous_supervisor.agent import cadence, cuts, halving
from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.calls import ROWS, is_alone
from stateous_supervisor.agent.client import DENIED, NO_ANSWER
from stateous_supervisor.agent.contact import Contact
from stateous_supervisor.agent.control_plane import CALL_S, ControlPlane, Result
from stateous_supervisor.agent.faults import Refused, Unanswered
from stateous_supervisor.agent.journal import Journal
from stateous_supervisor.agent.outbox import Envelope
from stateous_supervisor.agent.progress import Promise, nothing
from stateous_supervisor.agent.wake import Wake

LANES_MAX: Final = 8
NAMES_BYTES: Final = 1_024
GONE: Final = frozenset({404, 409})

Key = tuple[int, int]
Settle = Callable[[Envelope, Result], None]

_message: Final = msgspec.json.Decoder(TaskMessage)
ACCEPTED: Final = Result(status=200)


class _Line:
    """The messages of one attempt, in order."""

    __slots__ = ("asked_until", "cuts", "envelopes", "failures", "is_apart", "is_out", "not_before")

    def __init__(self) -> None:
        self.envelopes: deque[Envelope] = deque()
        self.not_before = self.asked_until = -math.inf
        self.failures = 0
        self.cuts = cuts.NONE
        self.is_out = False
        self.is_apart = False  # a request with nothing but its messages got no answer

    @property
    def is_call(self) -> bool:
        """Whether a call that is a request of its own comes next."""
        return bool(self.envelopes) and is_alone(self.envelopes[0].kind)

    def is_ready(self, now: float) -> bool:
        """Whether its messages may go together with others'."""
        return not (self.is_out or self.is_apart or self.is_call) and self.not_before <= now


class Delivery:
    """What is to be delivered. `tries` counts those that were not answered, for a stop that waits."""

    def __init__(
        self, control_plane: ControlPlane, journal: Journal, contact: Contact, luck: random.Random
    ) -> None:
        self.tries = 0
        self.promise: Promise = nothing
        self._control_plane = control_plane
        self._journal = journal
        self._contact = contact
        self._luck = luck
        self._lines: dict[Key, _Line] = {}
        self._wake = Wake()
        self._failures = 0
        self._not_before = self._asked_until = -math.inf
        self._is_hurried = False
        self._chunk_max = 0
        self._groups: halving.Groups = ()
        self._number = 0
        self._settle: Settle = lambda _envelope, _result: None

    @property
    def is_empty(self) -> bool:
        return not self._lines

    @property
    def depth(self) -> int:
        return sum(len(line.envelopes) for line in self._lines.values())

    def put(self, envelope: Envelope) -> None:
        """Take a message that is on disk."""
        line = self._lines.get((envelope.task, envelope.attempt))
        if line is None:
            line = self._lines[(envelope.task, envelope.attempt)] = _Line()
        line.envelopes.append(envelope)
        self._wake.ring()

    def drop(self, key: Key) -> None:
        """Forget what has not been sent of an attempt."""
        line = self._lines.get(key)
        if line is not None:
            line.envelopes.clear()
            if not line.is_out:
                del self._lines[key]

    def retry(self) -> None:
        """The control plane is back: try everything again as soon as it asked for (BH-035)."""
        self._not_before = self._asked_until
        for line in self._lines.values():
            line.not_before = line.asked_until
        self._wake.ring()

    def hurry(self) -> None:
        """Try everything once more now, whatever was asked for or refused: there is no later."""
        self._is_hurried = True
        self._not_before = -math.inf
        for line in self._lines.values():
            line.not_before = -math.inf
        self._wake.ring()

    async def run(self, settle: Settle) -> None:
        """Deliver, for ever. `settle` is told what became of each message."""
        self._settle = settle
        await self._contact.wait_for_terms()
        async with anyio.create_task_group() as lanes:
            while True:
                if self._contact.standing.is_refused and not self._is_hurried:
                    self.promise(math.inf)
                    await self._wake.wait()
                    continue
                self._is_hurried = False
                self.promise(CALL_S)
                if self._control_plane.terms.offers("batch"):
                    self._send_alone(lanes)
                    until = await self._send_batch()
                else:
                    until = self._send_singly(lanes)
                if until > anyio.current_time():
                    self.promise(math.inf)
                    await self._wake.wait(until)

    # Together, with `batch`.

    async def _send_batch(self) -> float:
        """Send one request with what is there; return until when there is nothing to do."""
        if self._not_before > anyio.current_time():
            return self._not_before
        taken = self._take()
        if not taken:
            return self._next_due()
        identity = taken[0].identity
        self._mark(taken, is_out=True)
        try:
            results = await self._control_plane.tell(identity, [envelope.body for envelope in taken])
        except Unanswered as error:
            return self._miss(error, taken)
        except Refused as error:
            self._narrow(taken, error)
            return -math.inf
        finally:
            self._mark(taken, is_out=False)
        self._failures = self._chunk_max = 0
        self._groups = halving.without(self._groups, _keys(taken))
        self._contact.reached()
        self._read(taken, results)
        return -math.inf

    def _take(self) -> list[Envelope]:
        """Return messages for one request: of one identity, within the limits, whole beginnings of lines."""
        terms = self._control_plane.terms
        count_max = min(self._chunk_max or terms.messages_max, terms.messages_max)
        room = terms.batch_bytes_max - NAMES_BYTES
        taken: list[Envelope] = []
        identity: Identity | None = None
        for key in self._turn():
            for envelope in self._lines[key].envelopes:
                if is_alone(envelope.kind):
                    break
                if identity is None:
                    identity = envelope.identity
                room -= len(envelope.body) + 1
                if envelope.identity != identity or len(taken) >= count_max or (taken and room < 0):
                    break
                taken.append(envelope)
            if len(taken) >= count_max or room < 0:
                break
        return taken

    def _turn(self) -> Sequence[Key]:
        now = anyio.current_time()
        ready = [key for key, line in self._lines.items() if line.is_ready(now)]
        self._groups = halving.kept(self._groups, self._lines)
        self._number += 1
        return halving.turn(self._groups, ready, self._number)

    def _mark(self, taken: list[Envelope], *, is_out: bool) -> None:
        for envelope in taken:
            key = (envelope.task, envelope.attempt)
            line = self._lines.get(key)
            if line is None:
                continue
            line.is_out = is_out
            if not is_out and not line.envelopes:  # dropped while it was out
                del self._lines[key]

    def _narrow(self, taken: list[Envelope], error: Refused) -> None:
        """A whole request was refused: find the message that is to blame by sending fewer (A-40)."""
        self._contact.reached()
        if len(taken) > 1:
            self._chunk_max = max(1, len(taken) // 2)
            return
        self._chunk_max = 0
        self._finish(taken[0], Result(error.status, error.code, error.sentence))

    def _read(self, taken: list[Envelope], results: list[Result]) -> None:
        stopped: set[Key] = set()
        for envelope, result in zip(taken, results, strict=True):
            key = (envelope.task, envelope.attempt)
            if result.status < 400:
                self._finish(envelope, result)
            elif key in stopped:
                continue  # not looked at, because an earlier one of its attempt was refused: sent again
            elif result.status in NO_ANSWER or result.status in DENIED:
                stopped.add(key)
                self._delay(key, None)
            else:
                stopped.add(key)
                self._finish(envelope, result)

    # One by one: calls that are requests of their own, and everything on the baseline.

    def _send_alone(self, lanes: TaskGroup) -> None:
        """Send each call that has come to the front of its line, for routines wait for it, and what goes apart."""
        now = anyio.current_time()
        apart = sum(line.is_out and line.is_apart for line in self._lines.values())
        for key, line in self._lines.items():
            is_due = line.is_call or (line.is_apart and apart < LANES_MAX)
            if is_due and not line.is_out and line.not_before <= now:
                line.is_out = True
                apart += line.is_apart
                lanes.start_soon(self._send_line, key, line)

    def _send_singly(self, lanes: TaskGroup) -> float:
        now = anyio.current_time()
        out = sum(line.is_out for line in self._lines.values())
        for key, line in self._lines.items():
            if out >= LANES_MAX:
                return math.inf  # a lane that ends rings
            if not line.is_out and line.not_before <= now:
                line.is_out = True
                out += 1
                lanes.start_soon(self._send_line, key, line)
        return self._next_due()

    async def _send_line(self, key: Key, line: _Line) -> None:
        try:
            while self._goes_alone(line):
                envelope = line.envelopes[0]
                result = await self._send_one(envelope, line)
                if result is None:
                    break
                line.failures, line.is_apart, line.cuts = 0, False, cuts.NONE
                self._finish(envelope, result)
        finally:
            line.is_out = False
            if not line.envelopes and self._lines.get(key) is line:
                del self._lines[key]
            self._wake.ring()

    def _goes_alone(self, line: _Line) -> bool:
        is_apart = line.is_apart or not self._control_plane.terms.offers("batch")
        return line.is_call or (is_apart and bool(line.envelopes))

    async def _send_one(self, envelope: Envelope, line: _Line) -> Result | None:
        """Send one message; None means that it has to be sent again later."""
        try:
            result = await self._tell(envelope)
        except Unanswered as error:
            self._delay((envelope.task, envelope.attempt), error)
            return self._cut_off(line, len(envelope.body)) if error.is_cut else None
        except Refused as error:
            self._contact.reached()
            return Result(error.status, error.code, error.sentence)
        self._contact.reached()
        if result.status in NO_ANSWER or result.status in DENIED:
            self._delay((envelope.task, envelope.attempt), None)
            return None
        return result

    async def _tell(self, envelope: Envelope) -> Result:
        if self._control_plane.terms.offers("batch") and not is_alone(envelope.kind):
            return (await self._control_plane.tell(envelope.identity, [envelope.body]))[0]
        if envelope.kind in ROWS:
            return await self._control_plane.ask(
                envelope.identity, envelope.kind, envelope.task, envelope.body
            )
        await self._control_plane.tell_one(envelope.identity, _message.decode(envelope.body))
        return ACCEPTED

    def _cut_off(self, line: _Line, size_bytes: int) -> Result | None:
        """Refuse a message in the place of somebody on the way who cuts what is so large, each time (BH-040)."""
        now = anyio.current_time()
        line.cuts = cuts.cut_again(line.cuts, now, self._contact.answers)
        if not cuts.are_enough(line.cuts, now, size_bytes):
            return None
        return Result(413, "cut_on_the_way", cuts.sentence(line.cuts, size_bytes))

    # What both have in common.

    def _finish(self, envelope: Envelope, result: Result) -> None:
        """A definite answer: the message leaves the outbox, and the roster is told."""
        key = (envelope.task, envelope.attempt)
        line = self._lines.get(key)
        if line is not None and line.envelopes and line.envelopes[0].id == envelope.id:
            line.envelopes.popleft()
            if not line.envelopes and not line.is_out:
                del self._lines[key]
        if envelope.id > 0:
            self._journal.batch.messages_over.append(envelope.id)
            self._journal.write_later()  # one that is delivered again is nothing new to the control plane
        self._settle(envelope, result)

    def _miss(self, error: Unanswered, taken: list[Envelope]) -> float:
        """No answer to a whole request: everything waits, unless one attempt alone may be to blame (A-37)."""
        keys = _keys(taken)
        if error.may_be_ours and len(keys) > 1:
            self._groups = halving.split(self._groups, keys)
        elif error.may_be_ours:
            self._groups = halving.without(self._groups, keys)
            self._lines[keys[0]].is_apart = True
            self._delay(keys[0], error)
            return -math.inf
        self._failures += 1
        self.tries += 1
        wait_s = self._wait_s(error, self._failures)
        self._contact.missed(error, wait_s)
        now = anyio.current_time()
        self._not_before, self._asked_until = now + wait_s, now + cadence.asked_wait_s(error.asked_s)
        return self._not_before

    def _delay(self, key: Key, error: Unanswered | None) -> None:
        """No answer to one attempt's message: its line waits."""
        line = self._lines.get(key)
        self.tries += 1
        if line is None:
            return
        line.failures += 1
        wait_s = self._wait_s(error, line.failures)
        line.not_before = anyio.current_time() + wait_s
        if error is not None:
            line.asked_until = anyio.current_time() + cadence.asked_wait_s(error.asked_s)
            self._contact.missed(error, wait_s)

    def _wait_s(self, error: Unanswered | None, failures: int) -> float:
        asked_s = None if error is None else error.asked_s
        luck, max_s = self._luck.random(), self._contact.backoff_max_s
        return cadence.backoff_s(failures, luck, asked_s=asked_s, max_s=max_s)

    def _next_due(self) -> float:
        return min((line.not_before for line in self._lines.values() if not line.is_out), default=math.inf)


def _keys(taken: list[Envelope]) -> list[Key]:
    return list(dict.fromkeys((envelope.task, envelope.attempt) for envelope in taken))
