"""Writes `docs/reference/proof.md`: each requirement in a few words, and the tests that name it.

``make docs`` writes it anew; a test fails when the page and the tests disagree. It lists files and nothing that changes
with every edit, so that two people who add tests seldom touch the same line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from house.requirements import LINES, PARTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "proof.md"
PLACES = (("tests", "test_*.py"), ("contract/conformance", "*.py"))

FINISHED = ("S1", "S2", "S3", "A")
OPEN: dict[str, str] = {}
"""Lines of finished parts that wait for something, and for what."""

HEAD = """\
# Requirements and their tests

Written from the tests by `make docs`; a test keeps it so. A test names a line (`S1-86`, `A-31`) in its own name, where it
reads `a_31`, or in its docstring. A line of a finished part without a test fails the suite.
"""

IN_TEXT = re.compile(r"\b(S[123]|A)-(\d{2,3})\b")
IN_NAME = re.compile(r"(?<=_)(s[123]|a)_(\d{2,3})(?=_|$)")
Named = dict[str, list[str]]


def named() -> Named:
    """Return the files whose tests name each line, in order; a line that nobody names has an empty list."""
    files: Named = {line: [] for line in LINES}
    for place, pattern in PLACES:
        for path in sorted((ROOT / place).rglob(pattern)):
            for line in sorted(lines_of(path.read_text(encoding="utf-8")) & files.keys()):
                files[line].append(path.relative_to(ROOT).as_posix())
    return files


def lines_of(source: str) -> set[str]:
    """Return the ids in the docstrings and in the names of the tests of `source`."""
    return {f"{part.upper()}-{number}" for part, number in _ids(ast.parse(source))}


def _ids(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from IN_NAME.findall(node.name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from IN_TEXT.findall(ast.get_docstring(node) or "")


def untested(files: Named) -> list[str]:
    """Return the lines of finished parts that no test names and that are not open."""
    return [
        line for line, paths in files.items() if not paths and part_of(line) in FINISHED and line not in OPEN
    ]


def part_of(line: str) -> str:
    return line.split("-", 1)[0]


def page() -> str:
    """Return the whole page."""
    files = named()
    return "\n".join([HEAD, *(row for part in PARTS for row in table(part, files))])


def table(part: str, files: Named) -> list[str]:
    state = "" if part in FINISHED else ", not finished"
    rows = [
        f"| {line} | {LINES[line]} | {proof(line, files[line])} |" for line in LINES if part_of(line) == part
    ]
    return [f"## {part}: {PARTS[part]}{state}", "", "| line | what | tests |", "|---|---|---|", *rows, ""]


def proof(line: str, paths: list[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths) or (f"open: {OPEN[line]}" if line in OPEN else "none")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
