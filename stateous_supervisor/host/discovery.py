"""Imports the files of a folder and finds the routines in them (A-04, A-05, A-06).

User code runs here for the first time. One broken file does not take the others down; what is wrong with the folder
as a whole (two routines for one state, an unknown state, a wrong signature) is a fault with both places named.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from stateous_contract.messages import Grant

from stateous_supervisor.host.failures import clean, describe, type_name
from stateous_supervisor.host.folder import Folder, look_at
from stateous_supervisor.host.overwritten import overwritten
from stateous_supervisor.link.frames import BrokenFile, Loaded, RoutineFacts, work_of
from stateous_supervisor.sdk.marks import Mark, RoutineRef, context_model, is_state, mark_of

CONTRACT = "contract"
NO_CONTRACT = "'stateous-supervisor contract FOLDER' writes contract.py from the control plane"

# What is served and in which version.
Served = tuple[str, int]


@dataclass(frozen=True)
class Routine:
    """One routine, as the runner needs it. `file` is relative to the folder where it is in there.

    `state` is what it is served as: a state, or ``@`` and the name of a routine without a graph.
    """

    state: str
    ref: Any
    function: Callable[[Any], Any]
    file: str
    line: int
    name: str
    is_async: bool
    isolation: str | None
    timeout_s: float | None
    version: int
    is_strict: bool

    @property
    def place(self) -> str:
        """Where it stands, for a sentence."""
        return f"{self.file}:{self.line} ({self.name})"

    def facts(self) -> RoutineFacts:
        """What the agent is told about it."""
        return RoutineFacts(
            state=self.state,
            file=self.file,
            line=self.line,
            name=self.name,
            is_async=self.is_async,
            isolation=self.isolation,
            versions=[self.version],
            timeout_s=self.timeout_s,
            is_strict=self.is_strict,
        )

    def context_model(self) -> Any:
        """Return the context model that its annotation names, or None."""
        return context_model(self.function)

    @property
    def has_graph(self) -> bool:
        """Whether it is the routine of a state, and so takes the context alone."""
        return not isinstance(self.ref, RoutineRef)


@dataclass
class Found:
    """What loading a folder gave."""

    routines: dict[Served, Routine] = field(default_factory=dict)
    broken: list[BrokenFile] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def loaded(self) -> Loaded:
        """The frame that tells the agent."""
        facts = [routine.facts() for routine in self.routines.values()]
        return Loaded(routines=facts, broken=self.broken, faults=self.faults)


def find(routines: Mapping[Served, Routine], grant: Grant) -> Routine:
    """Return the routine of a grant. Raises LookupError: there is none of its version.

    Where the control plane tells no version, or knows only the first of each state, it is the newest of the state.
    """
    work, version = work_of(grant), grant.version or 1
    found = routines.get((work, version))
    if found is None and grant.routine is None and version == 1:
        versions = (each for each in routines.values() if each.state == work)
        found = max(versions, key=lambda each: each.version, default=None)
    if found is None:
        what = f"the state {grant.state!r}" if grant.routine is None else f"{grant.routine!r}"
        of_version = "" if version == 1 else f" in version {version}"
        raise LookupError(f"there is no routine for {what}{of_version}")
    return found


def discover(path: Path, *, skip: Collection[str] = (), loading: Callable[[str], None]) -> Found:
    """Import every file of the folder at `path` in the order of its names, and find its routines.

    Args:
        path: the folder.
        skip: names of files to leave out, because importing them hung or ended an earlier host.
        loading: told the name of each file before it is imported.
    """
    folder = look_at(path)
    found = Found(faults=list(folder.faults))
    if found.faults:
        return found
    sys.dont_write_bytecode = True
    if str(folder.path) not in sys.path:
        sys.path.insert(0, str(folder.path))
    importlib.invalidate_caches()
    modules: list[ModuleType] = []
    for name, fault in folder.broken.items():
        found.broken.append(BrokenFile(file=name, line=None, error=fault))
    skipped = {os.path.basename(each) for each in skip}  # noqa: PTH119 - names, not paths of ours.
    for name in folder.files:
        if name not in skipped:
            loading(name)
            modules += _loaded(folder, name, found)
    _collect(folder, modules, found)
    return found


def _loaded(folder: Folder, name: str, found: Found) -> list[ModuleType]:
    """Import one file. The list is empty where that failed."""
    stem = name.removesuffix(".py")
    path = folder.path / name
    earlier = sys.modules.get(stem)
    if earlier is not None and getattr(earlier, "__file__", None) != str(path):
        del sys.modules[stem]
    try:
        return [importlib.import_module(stem)]
    except BaseException as error:
        found.broken.append(_broken(folder, name, error))
        return []


def _broken(folder: Folder, name: str, error: BaseException) -> BrokenFile:
    path = str(folder.path / name)
    line = _line_in(path, error)
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        return BrokenFile(file=name, line=line, error=f"importing it exits, with code {code}")
    if isinstance(error, ImportError) and error.name == CONTRACT and f"{CONTRACT}.py" not in folder.files:
        return BrokenFile(file=name, line=line, error=f"{describe(error).text}; {NO_CONTRACT}")
    if not isinstance(error, SyntaxError):
        return BrokenFile(file=name, line=line, error=describe(error).text)
    text = f"{type_name(error)}: {clean(str(error.msg), 500)}"
    if error.filename and os.path.realpath(error.filename) != path:
        text = f"it imports {_shown(folder, error.filename)}, which has in line {error.lineno}: {text}"
    else:
        line = error.lineno
    return BrokenFile(file=name, line=line, error=text)


def _line_in(path: str, error: BaseException) -> int | None:
    """The innermost line of the file at `path` that was running."""
    line = None
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == path:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _collect(folder: Folder, modules: list[ModuleType], found: Found) -> None:
    known = _known_states(modules)
    seen: set[int] = set()
    begins: set[tuple[str, int]] = set()
    for module in modules:
        for name, thing in list(vars(module).items()):
            mark = mark_of(thing)
            if mark is None or id(thing) in seen:
                continue
            seen.add(id(thing))
            routine = _routine(folder, module, name, thing, mark)
            begins.add((routine.file, routine.line))
            found.faults += _faults(routine, known)
            earlier = found.routines.setdefault((routine.state, routine.version), routine)
            if earlier is not routine:
                found.faults.append(_twice(earlier, routine))
    for module in modules:
        found.faults += _replaced(folder, module, begins)


def _replaced(folder: Folder, module: ModuleType, begins: set[tuple[str, int]]) -> Iterator[str]:
    """Routines of a file that a later one of the same name replaced, unless they were kept under another name."""
    path = Path(str(module.__file__))
    file = _shown(folder, str(path))
    for lost in overwritten(path.read_bytes()):
        if (file, lost.line) not in begins:
            yield (
                f"{file}:{lost.line} ({lost.name}) is replaced by {file}:{lost.by} ({lost.name}), so it would never "
                "run; each routine must have a name of its own"
            )


def _twice(earlier: Routine, routine: Routine) -> str:
    what = f"the state {routine.state!r}" if routine.has_graph else f"the name {routine.ref.routine!r}"
    of_version = "" if routine.version == 1 else f" of version {routine.version}"
    return (
        f"{what} has two routines{of_version}: {earlier.place} and {routine.place}; "
        "it must have one of each version"
    )


def _routine(folder: Folder, module: ModuleType, name: str, thing: Any, mark: Mark) -> Routine:
    code = _code(thing)
    file = code.co_filename if code is not None else getattr(module, "__file__", None) or module.__name__
    return Routine(
        state=mark.state.name,
        ref=mark.state,
        function=thing,
        file=_shown(folder, file),
        line=code.co_firstlineno if code is not None else 0,
        name=getattr(thing, "__qualname__", name),
        is_async=_is_async(thing),
        isolation=mark.isolation,
        timeout_s=mark.timeout_s,
        version=mark.version,
        is_strict=mark.is_strict,
    )


def _is_async(thing: Any) -> bool:
    if inspect.iscoroutinefunction(thing):
        return True
    call = getattr(type(thing), "__call__", None)  # noqa: B004 - the method itself is asked for, not whether it is.
    return not inspect.isroutine(thing) and inspect.iscoroutinefunction(call)


def _faults(routine: Routine, known: frozenset[str] | None) -> Iterator[str]:
    if known is not None and routine.has_graph and routine.state not in known:
        names = ", ".join(sorted(known)) or "no state"
        yield f"{routine.place} is for the state {routine.state!r}, which contract.py does not have; it has {names}"
    function = inspect.unwrap(routine.function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        yield f"{routine.place} is a generator function; a routine must not use 'yield'"
    try:
        signature = inspect.signature(routine.function)
    except (ValueError, TypeError):
        return  # Some callables of C have none; calling it will tell.
    try:
        signature.bind(*([object()] if routine.has_graph else [object(), object()]))
    except TypeError:
        takes = (
            "takes one argument, the context"
            if routine.has_graph
            else ("without a graph takes two arguments, the context and its input")
        )
        yield f"{routine.place} takes {signature}; a routine {takes}"


def _known_states(modules: list[ModuleType]) -> frozenset[str] | None:
    """The states that the folder's contract names, or None where there is no contract to ask."""
    contract = next((module for module in modules if module.__name__ == CONTRACT), None)
    states = getattr(contract, "states", None)
    if not isinstance(states, type):
        return None
    return frozenset(_names_in(states))


def _names_in(states: type) -> Iterator[str]:
    for thing in vars(states).values():
        if is_state(thing):
            yield thing.name
        elif isinstance(thing, type):
            yield from _names_in(thing)


def _code(thing: Any) -> CodeType | None:
    inner = inspect.unwrap(thing) if callable(thing) else thing
    code = getattr(inner, "__code__", None)
    if code is None:
        code = getattr(getattr(inner, "func", None), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _shown(folder: Folder, file: str) -> str:
    path = Path(os.path.realpath(file))
    return str(path.relative_to(folder.path)) if path.is_relative_to(folder.path) else str(path)
