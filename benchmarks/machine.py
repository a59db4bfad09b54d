"""What the benchmarks stand on: one PostgreSQL for both sides, processes that are surely ended, figures of processes.

Every figure is taken from outside: marks that a routine writes, rows in the database, `/proc`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil


@dataclass
class Process:
    """A child with its log file, ended with its whole tree."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def tree(self) -> list[psutil.Process]:
        root = psutil.Process(self.popen.pid)
        return [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        return sum(sum(p.cpu_times()[:2]) for p in self.tree())

    def cpu_s_each(self) -> dict[str, float]:
        """CPU seconds of the process and of each child, by role: agent, then its hosts."""
        names = ["agent", *(f"host{n}" for n in range(10))]
        return {name: sum(p.cpu_times()[:2]) for name, p in zip(names, self.tree(), strict=False)}

    def pss_mb_each(self) -> dict[str, float]:
        """Memory (PSS, what is shared counted in parts) of the process and of each child, by role."""
        names = ["agent", *(f"host{n}" for n in range(10))]
        return {name: p.memory_full_info().pss / 1e6 for name, p in zip(names, self.tree(), strict=False)}

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(10)
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


@dataclass
class Bench:
    """A folder for one run and the processes started in it."""

    folder: Path
    processes: list[Process] = field(default_factory=list)

    def start(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> Process:
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            popen = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **(env or {})})
        process = Process(name, popen, log)
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()
        self.processes.clear()


@contextlib.contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Yield a `Bench`; whatever it started is ended afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    running = Bench(folder)
    try:
        yield running
    finally:
        running.stop()


def postgres_cpu_s(data: Path) -> float:
    """CPU seconds of the server in a data folder: of all its processes, also those that ended."""
    server = next(
        p for p in psutil.process_iter(["cmdline"]) if str(data) in " ".join(p.info["cmdline"] or ())
    )
    used = server.cpu_times()
    total = sum(used[:4])
    for child in server.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:2])
    return total


def wait_until(what: str, condition, timeout_s: float = 120.0, every_s: float = 0.01) -> None:
    """Wait for a condition; a benchmark that waits in vain says for what."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(every_s)


def spread(values: list[float], digits: int = 1) -> str:
    """Return ``median [min..max]``."""
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"
