"""The SQL of this program by name: ``statements.pick`` is the statement that `queries/*.sql` calls ``pick``.

Each file holds blocks of ``-- name: x``, at least one line that says what it does, and one statement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

_BLOCK: Final = re.compile(r"^-- name: ([a-z_]+)\n((?:-- .*\n)+)((?:(?!-- name:).*\n?)*)", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """One named statement and what it does."""

    name: str
    file: str
    purpose: str
    text: str


class Statements:
    """All statements; an attribute is the text of the statement of that name."""

    def __init__(self, found: dict[str, Statement]) -> None:
        self.found = found

    def __getattr__(self, name: str) -> str:
        try:
            return self.found[name].text
        except KeyError:
            raise AttributeError(f"no statement is called {name!r}") from None


def read_statements() -> Statements:
    """Read every block of every file; raises ValueError for a name that is used twice."""
    found: dict[str, Statement] = {}
    folder = resources.files("stateous_control.store").joinpath("queries")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        for name, comment, text in _BLOCK.findall(file.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"{file.name}: the name {name!r} is used in {found[name].file} too")
            purpose = comment.replace("-- ", "").strip()
            found[name] = Statement(name, file.name, purpose, text.strip().removesuffix(";"))
    return Statements(found)


statements: Final = read_statements()
