"""What the agent itself reads of a supervisor's folder: that it is one, and the contract's checksum.

It never imports anything from there. That is the host's work.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from pathlib import Path
from typing import Final

import msgspec
from stateous_contract.reliance import Reliance

from stateous_supervisor.agent.faults import Exit, Fault

CONTRACT: Final = "contract.py"
CONTRACT_BYTES_MAX: Final = 16 * 1_048_576
_CHECKSUM: Final = re.compile(
    rb"""^__checksum__\s*(?::\s*\w+\s*)?=\s*["'](sha256:[0-9a-f]{64})["']""", re.MULTILINE
)
_STATES: Final = re.compile(rb"^__states__\s*(?::[^=\n]*)?=\s*(\{.*?^\})", re.MULTILINE | re.DOTALL)


def find(folder: Path) -> Path:
    """Return the folder as an absolute path.

    Raises:
        Fault: it is not there, no folder, or cannot be read (78).
    """
    try:
        real = folder.resolve(strict=True)
        os.listdir(real)  # noqa: PTH208  the error is wanted here, not at the first item
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Fault(Exit.CONFIG, f"{folder}: cannot be used as a supervisor's folder: {why}") from None
    return real


def checksum_of(folder: Path) -> str | None:
    """Return the checksum that `contract.py` was made for, read without importing it.

    None where there is none: a folder of routines without a graph needs no contract.

    Raises:
        Fault: it cannot be read, or has no checksum (78).
    """
    file = folder / CONTRACT
    mend = "'stateous-supervisor contract FOLDER' writes it from the control plane"
    try:
        with file.open("rb") as opened:
            text = opened.read(CONTRACT_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Fault(Exit.CONFIG, f"{file}: {(error.strerror or str(error)).lower()}; {mend}") from None
    found = _CHECKSUM.search(text)
    if found is None:
        raise Fault(Exit.CONFIG, f"{file}: has no line '__checksum__ = \"sha256:…\"'; {mend}")
    return found[1].decode()


def reliance_of(folder: Path) -> Reliance | None:
    """Return what the routines of each state rely on by `contract.py`; None where it does not say, or not legibly.

    A contract that Stateous generated does not say it: then the checksum alone counts.
    """
    try:
        with (folder / CONTRACT).open("rb") as opened:
            found = _STATES.search(opened.read(CONTRACT_BYTES_MAX))
        return None if found is None else msgspec.convert(ast.literal_eval(found[1].decode()), Reliance)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def state_folder(folder: Path, environment: dict[str, str]) -> Path:
    """Return where the agent of `folder` keeps its outbox when nothing says otherwise.

    `$STATE_DIRECTORY` (systemd) as it is, else one folder for each supervisor's folder below
    `$XDG_STATE_HOME`, else below `~/.local/state`.
    """
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    home = environment.get("XDG_STATE_HOME", "")
    base = Path(home) if home.startswith("/") else Path("~/.local/state").expanduser()
    return base / "stateous-supervisor" / name
