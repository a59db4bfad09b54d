"""`stateous-supervisor drain FOLDER`: have the agent finish and end, and wait for that (A-43, A-60)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.keys import duration_s
from stateous_supervisor.agent.overview import Drained
from stateous_supervisor.cli import options
from stateous_supervisor.cli.asking import ask, places

OPTION: Final = "--timeout"


def drain(
    folder_path: options.Folder,
    timeout: Annotated[
        str | None,
        typer.Option(OPTION, help="How long to wait, such as 10m. Default: for ever.", metavar="DURATION"),
    ] = None,
    state_dir: options.StateDir = None,
    as_json: options.Json = False,
) -> None:
    """Stop the agent as the first SIGTERM does, and wait until its routines have ended.

    After the timeout this command ends with 69 and the agent goes on draining.
    """
    try:
        within_s = None if timeout is None else duration_s(timeout)
    except ValueError as error:
        raise Fault(Exit.USAGE, f"'{OPTION}' is '{timeout}'; it {error}") from None
    late = f"the agent has not ended within {timeout} and goes on draining; 'status' shows what runs"
    result = ask("drain", Drained, places(folder_path, state_dir), folder_path, within_s=within_s, late=late)
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        kept = f"; {result.kept} to deliver at its next start" if result.kept else ""
        print(f"the agent has ended with {result.exit_code}{kept}")
    raise typer.Exit(result.exit_code)
