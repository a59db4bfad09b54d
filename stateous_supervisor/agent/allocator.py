"""How memory goes back to the system. glibc only; elsewhere nothing happens.

glibc takes a large block from the system by itself, but once one was freed it takes those of its size from the heap,
which small blocks then keep from shrinking: an agent that passes on results of a megabyte grew by a kilobyte a task.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

LARGE_BYTES: Final = 131_072  # where glibc begins, before it adapts
_M_MMAP_THRESHOLD: Final = -3


def give_large_blocks_back() -> None:
    """Have each block of `LARGE_BYTES` or more go back to the system when it is freed (BH-030).

    MALLOC_MMAP_THRESHOLD_ in the environment is left in force.
    """
    if sys.platform == "linux" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
