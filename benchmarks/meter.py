"""Marks that a benchmark routine writes: one line each, CLOCK_MONOTONIC in nanoseconds. Standard library only, because
it also runs in the peer's interpreter.
"""

import os
import time


class Meter:
    """Writes ``FIRST`` and ``LAST`` (of METER_TARGET calls), or ``RUN token`` for each call with METER_EACH=1."""

    def __init__(self) -> None:
        self.calls = 0
        self.target = int(os.environ.get("METER_TARGET", "0"))
        self.each = os.environ.get("METER_EACH") == "1"
        self.file = open(os.environ["METER_FILE"], "a", buffering=1)  # noqa: PTH123, SIM115

    def hit(self, token: str) -> None:
        at = time.monotonic_ns()
        self.calls += 1
        if self.each:
            self.file.write(f"RUN {token} {at}\n")
        elif self.calls == 1:
            self.file.write(f"FIRST - {at}\n")
        elif self.calls == self.target:
            self.file.write(f"LAST - {at}\n")

    def write(self, line: str) -> None:
        self.file.write(f"{line}\n")
