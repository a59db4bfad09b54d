"""Options that several commands share: those that stand for a key of `stateous.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="The supervisor's folder.", metavar="FOLDER")]
Url = Annotated[str | None, typer.Option(help="Where the control plane is.", metavar="URL")]
Tasks = Annotated[str | None, typer.Option(help="How many routines run at once.", metavar="NUMBER")]
Name = Annotated[str | None, typer.Option(help="The supervisor's name.", metavar="NAME")]
StateDir = Annotated[
    str | None, typer.Option(help="Where outbox and journal stand; relative to the folder.", metavar="PATH")
]
DrainTimeout = Annotated[
    str | None, typer.Option(help="How long a stop waits for routines, such as 10m.", metavar="DURATION")
]
Python = Annotated[
    str | None,
    typer.Option(help="The interpreter of the routine host; relative to the folder.", metavar="PATH"),
]
LogFormat = Annotated[str | None, typer.Option(help="auto, console or json.", metavar="WORD")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.", metavar="WORD")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
