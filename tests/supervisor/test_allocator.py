"""Large blocks go back to the system, whatever was freed before."""

from __future__ import annotations

import subprocess
import sys

GROWN_KB = """
import sys
from pathlib import Path
from stateous_supervisor.agent import allocator


def resident_kb():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss"))


if "told" in sys.argv:
    allocator.give_large_blocks_back()
del (first := [bytearray(4_000_000)])[:]  # glibc adapts to this
before = resident_kb()
blocks = []
for _ in range(40):
    blocks += [bytearray(1_000_000), bytes(600)]  # the small one is above each large one on the heap
del blocks[::2]
print(resident_kb() - before)
"""


def grown_kb(*given: str) -> int:
    ended = subprocess.run(
        [sys.executable, "-c", GROWN_KB, *given], capture_output=True, text=True, check=True
    )
    return int(ended.stdout)


def test_a_large_block_goes_back_to_the_system_though_small_ones_came_after_it() -> None:
    """BH-030."""
    assert grown_kb("told") < 8_000 < grown_kb()
