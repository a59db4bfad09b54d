"""How a command ends: exit codes (A-60) and the one exception that carries a sentence to the person who typed it."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. They are part of the interface: scripts and unit files act on them."""

    OK = 0
    FAILED = 1
    """The command worked, and what it waited for failed; or a second signal cut a stop short."""
    USAGE = 64
    UNREACHED = 69
    FAULT = 70
    """A mistake of ours."""
    NO_PLACE = 73
    """The data folder or its PostgreSQL cannot be used."""
    IN_USE = 75
    """Another process holds the address or the data folder."""
    REFUSED = 76
    BAD_FILE = 78
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class Failure(Exception):
    """An expected end of a command.

    Args:
        exit_code: what the process ends with.
        sentence: what went wrong, for a person.
        code: the same for programs, shown with ``--json``; the control plane's own code where it refused.
        may_be_heard: what was asked may have been done all the same: the answer is what is missing.
    """

    def __init__(
        self, exit_code: Exit, sentence: str, *, code: str | None = None, may_be_heard: bool = False
    ) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence
        self.code = code or exit_code.name.lower()
        self.may_be_heard = may_be_heard
