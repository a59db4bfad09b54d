"""What the house tests look for, as functions of source text: each yields one sentence a fault. They read no files."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400
SHORT_LINES = 10
NAMES_REFUSED = {"utils", "util", "helpers", "helper", "manager", "managers", "misc", "common"}
IMPURE = {
    "asyncio", "anyio", "datetime.now", "fcntl", "http", "io", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib.request",
    "uuid", "asyncpg", "httpx", "structlog", "logging",
}  # fmt: skip
IMPURE_CALLS = {"open", "input", "print"}
CLOCK_CALLS = {"now", "utcnow", "today"}
GROUND = {"stateous_contract", "stateous_control", "stateous_supervisor"}
WORKPLACE = ["/" + "work/", "shared" + "/spec", "/" + "opt/pypi", "brief" + ".md", "requirements" + ".md"]


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each module that is imported anywhere, with its line; a relative import is the room's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{name.name}", node.lineno) for name in node.names)


def door_faults(path: str, source: str, doors: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    """`doors` says for each room which modules may import which outside library; a library without one is a fault."""
    room = PurePosixPath(path).parts[0]
    room = "stateous_contract" if room == "contract" else room
    named = doors.get(room, {})
    for module, line in set(imported(ast.parse(source))):
        library = module.partition(".")[0]
        if (library in sys.stdlib_module_names and library not in named) or library in GROUND:
            continue
        allowed = named.get(library)
        if allowed is None:
            yield f"{path}:{line}: {library} has no door in {room}"
        elif not any(PurePosixPath(path).match(pattern) for pattern in allowed):
            yield f"{path}:{line}: {library} is reached through {' or '.join(allowed)} only"


def purity_faults(path: str, source: str) -> Iterator[str]:
    """A pure file has no clock, no chance, no input and output."""
    tree = ast.parse(source)
    for module, line in imported(tree):
        if module in IMPURE or module.partition(".")[0] in IMPURE:
            yield f"{path}:{line}: imports {module}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
            yield f"{path}:{node.lineno}: calls {called.id}"
        if isinstance(called, ast.Attribute) and called.attr in CLOCK_CALLS:
            yield f"{path}:{node.lineno}: asks a clock with {called.attr}()"


def import_faults(path: str, source: str, refused: Iterable[str]) -> Iterator[str]:
    """No module of `refused` is imported."""
    for module, line in imported(ast.parse(source)):
        if module.partition(".")[0] in refused:
            yield f"{path}:{line}: imports {module}"


def functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, first line and length of every function, decorators and docstring counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, first, (node.end_lineno or first) - first + 1


def size_faults(path: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield what is too long as a name for the list of exceptions and a sentence."""
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        yield path, f"{path}: {lines} lines; a file has at most {FILE_LINES_MAX}"
    for name, line, length in functions(source):
        if length > FUNCTION_LINES_MAX:
            yield f"{path}:{name}", f"{path}:{line}: {name} has {length} lines; at most {FUNCTION_LINES_MAX}"


def exception_faults(found: dict[str, str], exceptions: Iterable[str]) -> Iterator[str]:
    """What is found and not excepted is a fault, and so is an exception that nothing needs any more."""
    yield from (sentence for name, sentence in found.items() if name not in exceptions)
    yield from (
        f"{name}: no longer too long; take it off the list" for name in exceptions if name not in found
    )


def short_share(sources: Iterable[str]) -> float:
    """Return which share of all functions has fewer than ten lines."""
    lengths = [length for source in sources for _, _, length in functions(source)]
    return sum(length < SHORT_LINES for length in lengths) / len(lengths)


def docstring_faults(path: str, source: str) -> Iterator[str]:
    """A module with anything in it says first what it is, in at most ten lines."""
    if not source.strip():
        return
    told = ast.get_docstring(ast.parse(source))
    if told is None:
        yield f"{path}: the module does not say what it is"
    elif len(told.splitlines()) > 10:
        yield f"{path}: the module needs {len(told.splitlines())} lines to say what it is; at most ten"


def name_faults(path: str) -> Iterator[str]:
    """Files and folders have names that say something."""
    for part in PurePosixPath(path).parts:
        if PurePosixPath(part).stem.lower() in NAMES_REFUSED:
            yield f"{path}: {part!r} says nothing about what is in it"


def workplace_faults(path: str, text: str) -> Iterator[str]:
    """Nothing tells where it was made."""
    for word in WORKPLACE:
        for found in re.finditer(re.escape(word), text):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {word!r} is a word of the workplace"
