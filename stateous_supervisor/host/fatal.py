"""The end of a process that can do its work no more: a known code, and the reason as the last that it says.

User code shares the interpreter, and may have replaced anything in it, what this file needs too. So what is needed is
taken before any user code runs, no name of `builtins` is looked up, and whatever happens on the way, the process ends.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from types import TracebackType
from typing import Final, NoReturn

from stateous_supervisor.link.frames import FAULT_CODE, FAULT_MARK

_exit: Final = os._exit
_write: Final = os.write
_builtins: Final = builtins.__dict__
_kept: Final = _builtins.copy()
# What tools replace for good, and no code of ours calls.
_OTHERS: Final = frozenset(
    {"_", "__build_class__", "__import__", "breakpoint", "exit", "help", "input", "open", "print", "quit"}
)

Fault = Callable[[BaseException], None]


class Guard:
    """What is raised inside is a fault, which `fault` is told of instead of the caller."""

    __slots__ = ("_fault",)

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        self._fault(error)
        return True


def end(error: BaseException) -> NoReturn:
    """End this process at once, and say why: the agent, or the host of an isolated routine, reads it there."""
    try:
        where = _place(error.__traceback__)
        _write(2, f"\n{FAULT_MARK}{replaced() or _text(error)}{where}\n".encode("utf-8", "backslashreplace"))
    finally:
        _exit(FAULT_CODE)


def replaced() -> str | None:
    """Return which builtin functions and types are not Python's own any more, if any."""
    names = [name for name, own in _kept.items() if _builtins.get(name) is not own and name not in _OTHERS]
    return f"a routine replaced {', '.join(names[:5])} in builtins" if names else None


def _text(error: BaseException) -> str:
    kind = error.__class__
    # The text of any other is user code.
    return f"{kind.__name__}: {error}" if kind.__module__ == "builtins" else kind.__name__


def _place(traceback: TracebackType | None) -> str:
    """Return where it was raised."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f" ({code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}, {code.co_name})"
