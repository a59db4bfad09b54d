"""Whose fault it is, and whether to try again: the families of errors that the agent acts on.

`Fault` ends the program with an exit code and one sentence; the others are answers (or the want of one) of
the control plane, and the reaction is fixed by the class.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every command (A-60)."""

    DONE = 0
    ABANDONED = 1
    USAGE = 64
    UNREACHABLE = 69
    OURS = 70
    NO_STATE_FOLDER = 73
    HELD_BY_ANOTHER = 75
    REFUSED = 76
    CONFIG = 78
    INTERRUPTED = 130


class Fault(Exception):
    """The program cannot go on, for a reason that a person can mend.

    Args:
        exit_code: with what the program ends.
        sentence: the thing, what was found, what is allowed.
    """

    def __init__(self, exit_code: Exit, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


class Unanswered(Exception):
    """There is no definite answer: back off and send the same again.

    Args:
        sentence: what happened.
        asked_s: what `Retry-After` asked for.
        may_be_ours: whether they got what was sent, so that something in it may be to blame.
        is_cut: whether the connection broke under it.
    """

    def __init__(
        self,
        sentence: str,
        *,
        asked_s: float | None = None,
        may_be_ours: bool = False,
        is_cut: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.asked_s = asked_s
        self.may_be_ours = may_be_ours
        self.is_cut = is_cut

    @property
    def cause(self) -> str:
        """What happened, without what was asked and how long was waited: one cause is one text for every request."""
        where, _, what = self.sentence.partition(" ")
        return (what if "://" in where else self.sentence).partition(" within ")[0]


class Unreachable(Unanswered):
    """Nobody answered, or somebody who could not: no connection, a deadline, 408, 425, 429, 500 to 504."""


class PeerViolation(Unanswered):
    """What came back is not what a control plane says: a proxy's page, a redirect, JSON of another shape."""


class TooLarge(PeerViolation):
    """An answer is larger than what is read.

    Args:
        sentence: of what, and how large it may be.
        begin: its first bytes.
    """

    def __init__(self, sentence: str, *, begin: bytes) -> None:
        super().__init__(sentence)
        self.begin = begin


class Denied(Unanswered):
    """401 or 403: who we are is not accepted. Repeated slowly; it is mended elsewhere (A-51).

    Args:
        sentence: what happened.
        status: which of the two it is.
        body: what came with it; it may say more.
    """

    def __init__(self, sentence: str, *, status: int = 401, body: bytes = b"") -> None:
        super().__init__(sentence)
        self.status = status
        self.body = body


class Refused(Exception):
    """They understood and said no. Never repeated as it is.

    Args:
        status: the HTTP status.
        code: for programs.
        sentence: for people.
    """

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
