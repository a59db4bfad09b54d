"""`import stateous` in a host where that package is not installed gives our own names (A-10).

So a folder that was written for the published package runs unchanged. Where the real package is installed, it is
left alone. A second finder keeps files out that the agent said to leave out.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

import stateous_supervisor

NAME: Final = "stateous"

# What programs and workflow files use, and routines do not.
_NOT_OURS: Final = ("Client", "Workflow", "START", "END")


def install_alias() -> bool:
    """Make `import stateous` give our SDK. Returns False where the published package is installed."""
    if NAME in sys.modules:
        return isinstance(sys.modules[NAME], _Alias)
    spec = PathFinder.find_spec(NAME)
    # A folder of that name without an __init__ is no package that anybody installed.
    if spec is not None and spec.origin is not None:
        return False
    sys.meta_path.insert(0, _AliasFinder())
    return True


def keep_out(stems: Collection[str]) -> None:
    """Refuse to import the modules `stems`, which hung or killed an earlier host."""
    if stems:
        sys.meta_path.insert(0, _Refusing(frozenset(stems)))


class _Alias(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name in _NOT_OURS:
            raise ImportError(
                f"'{name}' is not for routines; the module 'stateous' of this host stands for stateous_supervisor. "
                "Install the package stateous to have it"
            )
        raise AttributeError(f"module {NAME!r} has no attribute {name!r}")


class _AliasFinder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self, origin="stateous_supervisor") if fullname == NAME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name, stateous_supervisor.__doc__)

    def exec_module(self, module: ModuleType) -> None:
        names = [name for name in stateous_supervisor.__all__ if not name.startswith("_")]
        for name in names:
            setattr(module, name, getattr(stateous_supervisor, name))
        vars(module)["__all__"] = names


class _Refusing(MetaPathFinder):
    def __init__(self, stems: frozenset[str]) -> None:
        self._stems = stems

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        del path, target
        if fullname in self._stems:
            raise ImportError(
                f"{fullname}.py is left out: importing it hung, or ended the host", name=fullname
            )
        return None
