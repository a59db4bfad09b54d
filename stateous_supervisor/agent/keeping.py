"""Messages on their way to the disk: they join the journal's next commit, and one callback serves all of one commit."""

from __future__ import annotations

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

    def write(self, assignment: Assignment, kind: str, body: bytes) -> Envelope:
        """Have a message of that attempt written with the next commit."""
        a = assignment
        number = self._journal.new_id()
        envelope = Envelope(number, a.task, a.attempt, a.state, a.token, a.identity, kind, body)
        batch = self._journal.batch
        if self._batch is not batch:
            self._batch, self._envelopes = batch, []
            self._journal.write_soon(partial(self._written, self._envelopes))
        self._envelopes.append(envelope)
        batch.messages.append(envelope)
        return envelope
