"""The command ``retention``: forget now what has ended long ago. `serve` does the same in its sweep."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from stateous_control.cli import databases
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.options import (
    AsJson,
    Data,
    Database,
    DatabaseFile,
    KeepLogs,
    KeepRoutines,
    KeepTokens,
)
from stateous_control.cli.screen import document, say

if TYPE_CHECKING:
    from stateous_control.engine.retention import Windows

_BATCHES_MAX = 1_000_000


def retention(
    keep_tokens: KeepTokens = None,
    keep_routines: KeepRoutines = None,
    keep_logs: KeepLogs = None,
    data: Data = None,
    database: Database = None,
    database_file: DatabaseFile = None,
    as_json: AsJson = False,
) -> None:
    """Forget what ended longer ago than said. What lives, and what it hangs on, is never touched."""
    from stateous_control.cli import running
    from stateous_control.engine.retention import forget

    kept = windows(keep_tokens, keep_routines, keep_logs)
    if not any(asdict(kept).values()):
        raise Failure(
            Exit.USAGE, "say what is to be forgotten: --keep-tokens, --keep-routines or --keep-logs"
        )
    url = databases.server_url(database, database_file, data, os.environ)
    with databases.joined(url, databases.data_folder(data, os.environ)) as used:
        done = running.run(
            lambda: running.on_schema(used, lambda pool: forget(pool, kept, batches_max=_BATCHES_MAX))
        )
    if as_json:
        document(asdict(done))
        return
    say(
        f"forgot {done.tokens:,} tokens, {done.routines:,} routines, {done.tasks:,} tasks of both, "
        f"and {done.log_lines:,} lines of logs"
    )


def windows(tokens: str | None, routines: str | None, logs: str | None) -> Windows:
    """Return for how long what has ended is kept, from the options of a command line."""
    from stateous_control.engine.retention import Windows

    return Windows(
        duration_s("--keep-tokens", tokens),
        duration_s("--keep-routines", routines),
        duration_s("--keep-logs", logs),
    )


def duration_s(option: str, text: str | None) -> float | None:
    """Return an option's duration in seconds, None where it was not given. Raises `Failure` (64)."""
    from stateous_control.graph.reading import duration_s as read

    if text is None:
        return None
    seconds = read(text)
    if seconds is None:
        raise Failure(Exit.USAGE, f"{option} is {text!r}; it must be a number and s, m, h or d, as in 30d")
    return float(seconds)
