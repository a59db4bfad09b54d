"""`stateous-supervisor contract FOLDER [SOURCE]`: refresh contract.py and show what changed (A-08)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stateous_supervisor.agent.faults import Exit
from stateous_supervisor.cli.workflow import find_source
from stateous_supervisor.scaffold import folder as folders


def contract(
    folder: Annotated[Path, typer.Argument(help="The supervisor's folder.", metavar="FOLDER")],
    source: Annotated[
        str | None,
        typer.Argument(
            help="A control plane or a workflow file. Default: the control plane of stateous.yaml.",
            metavar="SOURCE",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if contract.py is not up to date.")
    ] = False,
) -> None:
    """Write contract.py anew and show which states, events, models and fields changed. Nothing else is touched."""
    found = find_source(source, folder)
    written = folders.refresh(folder, found.document, found.checksum, is_dry=check)
    for line in written.changes:
        print(line)
    is_stale = bool(written.made or written.refreshed)
    verb = "is out of date" if check else "was written anew"
    print(f"{folder / folders.CONTRACT} {verb if is_stale else 'is up to date'}: {found.checksum}")
    if written.unserved:
        states = ", ".join(written.unserved)
        print(f"without a routine: {states} ('stateous-supervisor init' writes stubs)")
    for sentence in written.unreadable:
        print(f"not readable: {folder / sentence}")
    if check and is_stale:
        raise typer.Exit(Exit.ABANDONED)
