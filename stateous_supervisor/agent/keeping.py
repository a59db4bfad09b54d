"""Messages on their way to the disk: they join the journal's next commit, and one callback serves all of one commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from stateous_supervisor.agent.assignment import Assignment
from stateous_supervisor.agent.journal import Journal
from stateous_supervisor.agent.outbox import Batch, Envelope

Written = Callable[[list[Envelope]], None]


class Keeping:
    """What is to be written. `written` gets the messages of a commit, in the order in which they were made."""

    def __init__(self, journal: Journal, written: Written) -> None:
        self._journal = journal
        self._written = written
        self._batch: Batch | None = None
        self._envelopes: list[Envelope] = []
        self._open: Counter[tuple[int, int]] = Counter()

    def pass_on(self, envelope: Envelope) -> None:
        """Hand on what is not written, behind what was written before it and is not on disk yet."""
        if self._open[envelope.task, envelope.attempt]:
            self._add(envelope)
        else:
            self._written([envelope])

    def write(self, assignment: Assignment, kind: str, body: bytes) -> Envelope:
        """Have a message of that attempt written with the next commit."""
        a = assignment
        number = self._journal.new_id()
        envelope = Envelope(number, a.task, a.attempt, a.state, a.token, a.identity, kind, body)
        self._add(envelope)
        self._journal.batch.messages.append(envelope)
        return envelope

    def _add(self, envelope: Envelope) -> None:
        batch = self._journal.batch
        if self._batch is not batch:
            self._batch, self._envelopes = batch, []
            self._journal.write_soon(partial(self._hand_on, self._envelopes))
        self._envelopes.append(envelope)
        self._open[envelope.task, envelope.attempt] += 1

    def _hand_on(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            key = (envelope.task, envelope.attempt)
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
        self._written(envelopes)
