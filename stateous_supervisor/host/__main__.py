"""``python -P -m stateous_supervisor.host --link FD [--skip FILE]… FOLDER``: a routine host as a process.

The agent starts it, with its end of a socket pair as an inherited descriptor. What is imported here is all that the
warden has in memory, which is forked before the rest.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from stateous_supervisor.host import processes, warden

_USAGE = (
    "usage: python -P -m stateous_supervisor.host --link FD [--skip FILE]... FOLDER (the agent starts it)"
)


def main(arguments: list[str]) -> NoReturn:
    """Serve until the agent ends it."""
    descriptor, skip, folder = _read(arguments)
    spared = warden.post(descriptor) if processes.lead_session() else None
    from stateous_supervisor.host import process

    process.serve(descriptor, folder, skip=skip, spared=spared)


def _read(arguments: list[str]) -> tuple[int, list[str], str]:
    descriptor: int | None = None
    skip: list[str] = []
    folders: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--link":
            text = next(given, "")
            descriptor = int(text) if text.isdecimal() else None
        elif argument == "--skip":
            skip.append(next(given, ""))
        else:
            folders.append(argument)
    if descriptor is None or len(folders) != 1:
        sys.stderr.write(_USAGE + "\n")
        raise SystemExit(64)
    return descriptor, skip, folders[0]


if __name__ == "__main__":
    main(sys.argv[1:])
