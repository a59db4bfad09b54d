"""The door to prctl(2): what a process can say about its orphans and its parent. Linux only; elsewhere nothing happens.

Called by the nursery, its keepers and the processes of routines.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none of them is out of reach (BH-027)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed when the thread that forked this process ends."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def outlive_parent() -> None:
    """Take `die_with_parent` back."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
