"""`stateous-supervisor init SOURCE FOLDER`: make or complete a supervisor's folder (A-08)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stateous_supervisor.cli.workflow import find_source
from stateous_supervisor.scaffold import folder as folders


def init(
    source: Annotated[
        str,
        typer.Argument(
            help="The URL of a running control plane, or a workflow file (.yaml, .json).", metavar="SOURCE"
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(help="The supervisor's folder; it is made if need be.", metavar="FOLDER")
    ],
) -> None:
    """Write contract.py, a stub for each state without a routine, and stateous.yaml.

    A routine is never overwritten, and stateous.yaml is written only where there is none.
    """
    found = find_source(source, folder)
    written = folders.init(folder, found.document, found.checksum, found.url)
    for name in written.made:
        print(f"made       {folder / name}")
    for name in written.refreshed:
        print(f"refreshed  {folder / name}")
    for name in written.kept:
        print(f"unchanged  {folder / name}")
    for line in written.changes:
        print(f"           {line}")
    for sentence in written.unreadable:
        print(f"skipped    {folder / sentence}; whether it holds routines is not known")
