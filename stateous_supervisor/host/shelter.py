"""What keeps user code from hurting the host process by accident (A-26, A-47).

Done once at the start of the process, before any user code: signals that end nothing, and what a forked child must
forget. Never used in `--inline`. What the environment must not hold the agent never gives: it would stay to be read in
``/proc`` (`agent/host_process.py`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stateous_supervisor.host import streams
from stateous_supervisor.link.frames import DUMP_SIGNAL

# Signals that end a process unless somebody handles them, and that user code causes by accident.
HARMLESS: Final = (
    "SIGINT",
    "SIGTERM",
    "SIGHUP",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGUSR1",
    "SIGUSR2",
    "SIGPIPE",
)

# How much sooner than the agent the kernel ends a host that runs short of memory; what a routine runs in comes first.
HOST_OOM_SCORE: Final = 200

_forked: Final[list[bool]] = []


def take(link: int) -> None:
    """Prepare this process. The descriptor `link` is kept from every program that it starts."""
    os.set_inheritable(link, False)
    go_first(HOST_OOM_SCORE)
    faulthandler.enable(file=2, all_threads=True)
    # Not a Python handler, so that it also works while a C call holds the interpreter's lock.
    faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True)
    ignore_signals()


def go_first(score: int) -> None:
    """Have the kernel end this process before the agent where memory runs short.

    A unit may protect the agent by `OOMScoreAdjust=`, which all of its children inherit.

    Args:
        score: what is added to the score of a process that nobody protects, up to 1,000.
    """
    with contextlib.suppress(OSError, ValueError):
        adjust = Path("/proc/self/oom_score_adj")
        adjust.write_text(str(min(1_000, max(int(adjust.read_text()), 0) + score)))


def ignore_signals() -> None:
    """Have the signals that user code or a terminal send by accident do nothing to this process."""
    for name in HARMLESS:
        # A handler and not SIG_IGN: the programs that routines start would inherit that.
        signal.signal(getattr(signal, name), _ignore)


def default_signals() -> None:
    """Have every signal do what it does in a fresh interpreter. In the main thread."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number not in (signal.SIGKILL, signal.SIGSTOP):
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def at_fork(let_go: Callable[[], None]) -> None:
    """Call `let_go` in every child that user code forks, before anything else runs there (BH-025).

    While a child holds the link, the agent would not see the host's end.
    """
    os.register_at_fork(after_in_child=lambda: _on_forked(let_go))


def end_if_forked(error: BaseException | None) -> None:
    """End a forked child that fell out of its routine: the attempt is the parent's to end."""
    if _forked:
        code = error.code if isinstance(error, SystemExit) else 1 if error is not None else 0
        os._exit(code if isinstance(code, int) else 1)


def _ignore(_signal: int, _frame: Any) -> None:
    """Do nothing. The agent ends the host by closing the link."""


def _on_forked(let_go: Callable[[], None]) -> None:
    """In a child that user code forked: talk to nobody, and take signals as any process does."""
    _forked.append(True)
    let_go()
    streams.uninstall()
    for name in HARMLESS:
        number = getattr(signal, name)
        if signal.getsignal(number) is _ignore:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
