"""How a durable call leaves the routine: parked, lost, or refused.

`Parked` and `AttemptLost` are control flow and no `Exception`: ``except Exception`` and retry decorators let them
through (S1-46). `FeatureMissing`, `CallRefused` and `ChildFailed` are ordinary errors of the routine.
"""

from __future__ import annotations


class Parked(BaseException):
    """The task is parked, and this attempt is over: let it through (S1-43, S1-45).

    The routine starts again from the top when the wait is over, on any box; what it has passed is not done again.

    Args:
        reason: why the task is parked, as its `watchdog_stop_reason`.
        question: the id of the question that was asked, where it waits for one.
    """

    def __init__(self, reason: str, question: int | None = None) -> None:
        super().__init__(f"the task is parked ({reason})")
        self.reason = reason
        self.question = question


class AttemptLost(BaseException):
    """The attempt is over for the control plane: nothing that it does counts any more.

    Raised by `check()` and by durable calls. It is no `Exception`, so that ``except Exception`` does not swallow it.
    """


class FeatureMissing(Exception):
    """The control plane lacks what a durable call needs. No retry mends that: the attempt fails for good (A-64)."""


class CallRefused(Exception):
    """The control plane refused a durable call: the question is none that it takes, for one.

    Args:
        code: why, for programs.
        sentence: why, for people.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{sentence} ({code})")
        self.code = code
        self.sentence = sentence


class ChildFailed(Exception):
    """The child whose result was asked for has none.

    Args:
        task: the child's id.
        state: how it ended: failed, expired or cancelled.
        reason: why, as its `watchdog_stop_reason`.
        error: the text of its last failure.
    """

    def __init__(self, task: int, state: str, reason: str | None, error: str | None) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(f"task {task} is {state}{why}" + (f": {error}" if error else ""))
        self.task = task
        self.state = state
        self.reason = reason
        self.error = error


class InputInvalid(ValueError):
    """The input of a routine is not what it takes, in this attempt and in every other one."""
