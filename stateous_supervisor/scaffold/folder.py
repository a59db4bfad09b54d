"""A supervisor's folder on disk: what `init` and `contract` write into it, and what they leave alone.

It reads routines as text, never imports them and never overwrites one. A file is written whole or not at all.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.scaffold.changes import Outline, differences, outline
from stateous_supervisor.scaffold.codegen import contract_text, names_of
from stateous_supervisor.scaffold.document import Document
from stateous_supervisor.scaffold.stubs import Marked, marked_in, stubs_for

CONTRACT = "contract.py"
SETTINGS = "stateous.yaml"

_SETTINGS_TEXT = """\
# Which control plane this folder's routines work for; `stateous-supervisor config .` shows every key.
url: {url}
"""
_GENERATED = re.compile(r"^__checksum__ = ", re.MULTILINE)


@dataclass
class Written:
    """What was done. File names are relative to the folder.

    `changes`: what a new contract changes, in lines; empty for a first one and where no routine could notice.
    `unserved`: states without a routine that got no stub. `unreadable`: files that do not parse, each with a
    sentence; whether they hold routines is not known.
    """

    made: list[str] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    unserved: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def init(folder: Path, document: Document, checksum: str, url: str) -> Written:
    """Write contract, stubs and settings into `folder`, which is made if need be. Raises Fault."""
    written = Written()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fault(Exit.CONFIG, f"{folder}: {error.strerror or error}") from None
    _write_contract(folder, contract_text(document, checksum), written)
    _write_stubs(folder, document, written)
    if (folder / SETTINGS).exists():
        written.kept.append(SETTINGS)
    else:
        _write(folder / SETTINGS, _SETTINGS_TEXT.format(url=url))
        written.made.append(SETTINGS)
    return written


def refresh(folder: Path, document: Document, checksum: str, *, is_dry: bool = False) -> Written:
    """Write the contract anew and say what it changes; with `is_dry` only say it. Raises Fault."""
    if not folder.is_dir():
        raise Fault(Exit.CONFIG, f"{folder} is no folder; 'stateous-supervisor init' makes one")
    written = Written()
    _write_contract(folder, contract_text(document, checksum), written, is_dry=is_dry)
    marked = _marked(folder, written)
    written.unserved = [stub.state for stub in stubs_for(document, names_of(document), marked, ())]
    return written


def _write_contract(folder: Path, text: str, written: Written, *, is_dry: bool = False) -> None:
    path = folder / CONTRACT
    old = _read(path) if path.exists() else None
    if old is None:
        written.made.append(CONTRACT)
    elif old == text:
        written.kept.append(CONTRACT)
        return
    elif _GENERATED.search(old) is None:
        raise Fault(
            Exit.CONFIG,
            f"{path} was not written by init (it has no __checksum__); move it out of the way first",
        )
    else:
        written.refreshed.append(CONTRACT)
        written.changes = differences(_outline(old), outline(text))
    if not is_dry:
        _write(path, text)


def _write_stubs(folder: Path, document: Document, written: Written) -> None:
    marked = _marked(folder, written)
    taken = [path.name for path in folder.iterdir()]
    for stub in stubs_for(document, names_of(document), marked, taken):
        if any(sentence.startswith(stub.file_wanted) for sentence in written.unreadable):
            written.unserved.append(stub.state)
            continue
        _write(folder / stub.file, stub.text)
        written.made.append(stub.file)


def _marked(folder: Path, written: Written) -> list[Marked]:
    """Read the marks of every file that would be loaded (A-04), and note those that do not parse."""
    found: list[Marked] = []
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_") or path.name == CONTRACT:
            continue
        try:
            found.append(marked_in(_read(path)))
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            written.unreadable.append(f"{path.name}{line}: {getattr(error, 'msg', error)}")
    return found


def _outline(text: str) -> Outline:
    """The outline of an old contract; one that does not parse any more has none, so everything is new."""
    try:
        return outline(text)
    except SyntaxError:
        return Outline()


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise Fault(Exit.CONFIG, f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise Fault(Exit.CONFIG, f"{path}: {error.strerror or error}") from None


def _write(path: Path, text: str) -> None:
    """Write a whole file beside its place and put it there, so that a reader never sees half of it."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, delete=False
        ) as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(file.name).chmod(0o666 & ~umask)
        Path(file.name).replace(path)
    except OSError as error:
        raise Fault(Exit.CONFIG, f"{path}: {error.strerror or error}") from None
