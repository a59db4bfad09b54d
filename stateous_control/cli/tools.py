"""The command `postgres`: runs pg_dump, pg_restore or psql on the embedded PostgreSQL, for backups and a look."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from stateous_control.cli import databases
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import Data


def postgres(
    program: Annotated[
        list[str], typer.Argument(metavar="PROGRAM [ARGUMENT]...", help="As in: pg_dump -Fc -f FILE")
    ],
    data: Data = None,
) -> int:
    """Run a PostgreSQL program on the embedded database, also while `serve` runs: pg_dump, pg_restore, psql."""
    from stateous_control.embedded import find_install

    tools = find_install() / "bin"
    with databases.joined(None, databases.data_folder(data, os.environ)) as url:
        return _run(program, url, tools)


def _run(program: list[str], url: str, tools: Path) -> int:
    parts = urlsplit(url)
    where = parse_qs(parts.query)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {
        "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PGHOST": where["host"][0],
        "PGUSER": where["user"][0],
        "PGDATABASE": parts.path.lstrip("/"),
    }
    try:
        return subprocess.run(program, env=environment, check=False).returncode
    except OSError as error:
        raise Failure(Exit.USAGE, f"{program[0]} cannot be run: {error.strerror}") from None
