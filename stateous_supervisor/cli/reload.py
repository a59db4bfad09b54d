"""`stateous-supervisor reload FOLDER`: the running agent reads configuration and folder again (A-45)."""

from __future__ import annotations

from typing import Final

import msgspec

from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.overview import Reloaded
from stateous_supervisor.cli import options
from stateous_supervisor.cli.asking import ask, places

LOADED_S: Final = 600.0


def reload(
    folder_path: options.Folder, state_dir: options.StateDir = None, as_json: options.Json = False
) -> None:
    """Have the running agent read stateous.yaml and the folder again; what runs goes on to its end.

    If they are not good, nothing changes and it says why.
    """
    result = ask("reload", Reloaded, places(folder_path, state_dir), folder_path, within_s=LOADED_S)
    if result.error is not None:
        raise Fault(Exit.CONFIG, f"not reloaded, the agent goes on as it was: {result.error}")
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        print(f"reloaded: host {result.host} serves {', '.join(result.states)}")
        if result.needs_restart:
            print(f"needs a restart: {', '.join(result.needs_restart)}")
