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
Lease = Annotated[float, typer.Option(help="Seconds that a claimed task is held without a heartbeat.")]
Heartbeat = Annotated[float, typer.Option(help="Seconds between heartbeats of a supervisor.")]
Sweep = Annotated[float, typer.Option(help="Seconds between looks for what has come due.")]
RetryDelay = Annotated[float, typer.Option(help="Seconds before the first retry; later ones wait longer.")]
KeepTokens = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long tokens are kept after their end. Default: for ever."),
]
KeepRoutines = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long routines without a token are kept. Default: for ever."),
]
KeepLogs = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long logs of tasks that are gone are kept. Default: for ever."),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the embedded PostgreSQL. Default: STATE_DIRECTORY, else "
        "stateous-control in XDG_STATE_HOME or in ~/.local/state.",
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
