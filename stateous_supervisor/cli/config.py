"""`stateous-supervisor config FOLDER`: the effective values, and where each of them came from (A-02)."""

from __future__ import annotations

import json
import os

from stateous_supervisor.agent import config as settings
from stateous_supervisor.cli import options


def config(
    folder_path: options.Folder,
    url: options.Url = None,
    as_json: options.Json = False,
) -> None:
    """Show every key with its effective value and its origin: flag, environment, file and line, or default."""
    found = settings.load(folder_path, flags={"url": url}, environment=os.environ)
    shown = {
        name: (settings.masked(name, setting.value), setting.origin)
        for name, setting in found.settings.items()
    }
    if as_json:
        rows = {name: {"value": value, "origin": origin} for name, (value, origin) in shown.items()}
        print(json.dumps(rows, indent=2))
        return
    width = max(len(f"{name}: {value}") for name, (value, _) in shown.items())
    for name, (value, origin) in shown.items():
        print(f"{f'{name}: {value}':<{min(width, 60)}}  # {origin}")
