"""`stateous-supervisor check FOLDER`: load the folder as `run` would, without a control plane, and judge it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import typer

from stateous_supervisor.agent import config, folder, tls
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.host import HostUnusable, where
from stateous_supervisor.agent.host_process import ProcessHosts
from stateous_supervisor.cli import options
from stateous_supervisor.link.frames import BrokenFile, RoutineFacts

CERTIFICATES: Final = "ca_file, client_cert and client_key must be PEM files that the agent can read"


def check(
    folder_path: options.Folder,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    """Check stateous.yaml, contract.py and every routine file. Ends with 78 if any of them is not fit to run."""
    settings = config.load(folder_path, flags={"python": python}, environment=os.environ)
    checksum = folder.checksum_of(settings.folder)
    loaded = anyio.run(_load, settings)
    routines = loaded.routines
    faults = [*loaded.faults, *(f"{where(file)}: {file.error}" for file in loaded.broken)]
    if not routines and not faults:
        faults.append(f"{settings.folder}: has no routine")
    unusable = tls.fault_of(**settings.certificates)
    if unusable is not None:
        faults.append(f"{unusable}; {CERTIFICATES}")
    if as_json:
        print(json.dumps(_document(checksum, routines, faults), indent=2))
    else:
        for routine in routines:
            kind = "async def" if routine.is_async else "def"
            what = f"{routine.state}{_version(routine)}"
            strict = ", strict" if routine.is_strict else ""
            print(f"{what:<24} {kind} {routine.name} ({Path(routine.file).name}:{routine.line}){strict}")
    for sentence in faults:
        print(f"error: {sentence}", file=sys.stderr)
    raise typer.Exit(Exit.CONFIG if faults else Exit.DONE)


class Loaded(NamedTuple):
    """What a host made of a folder."""

    python: str
    routines: list[RoutineFacts]
    broken: list[BrokenFile]
    faults: list[str]


async def load(settings: config.Config, printed: Callable[[str], None]) -> Loaded:
    """Load the folder in a host of its own.

    Raises:
        HostUnusable: no host could be started.
    """
    source = ProcessHosts(
        settings.python,
        settings.folder,
        printed=lambda _, line: printed(line),
        environment=os.environ,
    )
    async with source.open(1) as host:
        return Loaded(host.python, list(host.routines), list(host.broken), list(host.faults))


async def _load(settings: config.Config) -> Loaded:
    try:
        return await load(settings, lambda line: print(line, file=sys.stderr))
    except HostUnusable as unusable:
        raise Fault(Exit.CONFIG, unusable.sentence) from None


def _version(routine: RoutineFacts) -> str:
    return "" if routine.versions == [1] else f" version {routine.versions[0]}"


def _document(checksum: str | None, routines: list[RoutineFacts], faults: list[str]) -> dict[str, object]:
    found = [
        {
            "state": r.state,
            "version": r.versions[0],
            "file": r.file,
            "line": r.line,
            "name": r.name,
            "async": r.is_async,
            "strict": r.is_strict,
        }
        for r in routines
    ]
    return {"ok": not faults, "checksum": checksum, "routines": found, "faults": faults}
