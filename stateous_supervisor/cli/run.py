"""`stateous-supervisor run FOLDER`: the daemon."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from stateous_supervisor.agent import allocator, config, folder
from stateous_supervisor.cli import first_process, options


def run(
    folder_path: options.Folder,
    inline: Annotated[
        bool, typer.Option("--inline", help="Run routines inside this process, for a debugger.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Do not start with a file that does not load.")
    ] = False,
    url: options.Url = None,
    tasks: options.Tasks = None,
    name: options.Name = None,
    state_dir: options.StateDir = None,
    drain_timeout: options.DrainTimeout = None,
    python: options.Python = None,
    log_format: options.LogFormat = None,
    log_level: options.LogLevel = None,
) -> None:
    """Claim tasks and run the folder's routines until SIGTERM or SIGINT.

    The first signal drains: running routines end and are reported. The second one ends it within seconds.
    """
    first_process.stand_aside()
    allocator.give_large_blocks_back()
    flags = {
        "url": url,
        "tasks": tasks,
        "name": name,
        "state_dir": state_dir,
        "drain_timeout": drain_timeout,
        "python": python,
        "log.format": log_format,
        "log.level": log_level,
    }

    def read() -> config.Config:
        return config.load(folder_path, flags=flags, environment=os.environ)

    settings = read()
    folder.checksum_of(settings.folder)
    from stateous_supervisor.cli.daemon import serve

    raise typer.Exit(serve(settings, reread=read, is_inline=inline, is_strict=strict))
