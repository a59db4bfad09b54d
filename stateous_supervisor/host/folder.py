"""The files of a routine folder, before anything of it is imported: which are loaded, and which are refused by name.

Reads directory entries only. The folder comes first on `sys.path`, so a file named like a module of the standard
library (or like one that the host needs) would take its place; that is found here (A-04).
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

NEEDED: Final = frozenset(
    {
        "annotated_types",
        "msgspec",
        "pydantic",
        "pydantic_core",
        "stateous",
        "stateous_contract",
        "stateous_supervisor",
        "typing_extensions",
        "typing_inspection",
    }
)


@dataclass
class Folder:
    """What is in a folder. `files` are names to load, in order; `broken` are names that cannot be, with a sentence."""

    path: Path
    files: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def look_at(path: Path) -> Folder:
    """List the folder at `path`. Faults of the folder as a whole are in the answer; nothing is raised."""
    folder = Folder(Path(os.path.realpath(path)))
    try:
        names = sorted(entry.name for entry in folder.path.iterdir())
    except OSError as error:
        folder.faults.append(f"{path}: {_reason(error)}; it must be a folder with routines that can be read")
        return folder
    for name in names:
        _look_at_entry(folder, name)
    return folder


def _look_at_entry(folder: Folder, name: str) -> None:
    path = folder.path / name
    stem = name.split(".", maxsplit=1)[0]
    is_file = name.endswith((".py", ".so"))
    if is_file or (path / "__init__.py").exists():
        owner = _owner(stem)
        if owner is not None:
            folder.faults.append(
                f"{path} shadows the module {stem!r} of {owner}: every import of it would get this "
                "file. Rename it"
            )
            return
    if not name.endswith(".py") or name.startswith(("_", ".")) or path.is_dir():
        return
    fault = _fault(path, name)
    if fault is None:
        folder.files.append(name)
    else:
        folder.broken[name] = fault


def _owner(stem: str) -> str | None:
    if stem in sys.stdlib_module_names:
        return "the standard library"
    return "the routine host's own packages" if stem in NEEDED else None


def _fault(path: Path, name: str) -> str | None:
    if "." in name.removesuffix(".py"):
        return "its name has a dot, so it cannot be imported; rename it"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"it is a link to {path.readlink()}, which is not there"
    except OSError as error:
        return f"it cannot be read: {_reason(error)}"
    if not stat.S_ISREG(mode):
        return "it is no regular file"
    return None if os.access(path, os.R_OK) else "it cannot be read: permission denied"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
