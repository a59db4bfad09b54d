"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str, typer.Option("--url", envvar="STATEOUS_URL", help="The control plane.", show_default=True)
]
URL_DEFAULT = "http://127.0.0.1:8080"
KeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A file with the key for the control plane. Default: STATEOUS_KEY, which is the key itself.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, also when something goes wrong.")
]
OnQuestion = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND|URL",
        help="Tell people of each open question, and remind them: run a command (JSON on stdin, no shell), or post "
        "to a URL.",
    ),
]
SecretFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file with the secret that signs what is posted.")
]
TaskTtl = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="How long a task may live before it expires, such as 30d. Default: for ever."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the embedded PostgreSQL. Default: $STATE_DIRECTORY, else "
        "$XDG_STATE_HOME/stateous-control, else ~/.local/state/stateous-control.",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="A PostgreSQL server, without a password. Or set STATEOUS_DATABASE_URL."
    ),
]
DatabaseFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file that holds the URL of a PostgreSQL server.")
]
