"""What routines import: ``from stateous_supervisor import Context, on_state``.

The names are loaded when they are first asked for, because the agent process is in this package too and never
imports what user code is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateous_supervisor.sdk.context import AsyncContext, Context, EnteredBy
    from stateous_supervisor.sdk.endings import AttemptLost, CallRefused, ChildFailed, FeatureMissing, Parked
    from stateous_supervisor.sdk.marks import on_state, routine
    from stateous_supervisor.sdk.memory import Memory
    from stateous_supervisor.sdk.occurrences import Occurrence
    from stateous_supervisor.sdk.states import OutcomeError, StateRef
    from stateous_supervisor.sdk.waiting import (
        Child,
        Finished,
        Received,
        Result,
        Signal,
        Sleep,
        Slept,
        TimedOut,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncContext",
    "AttemptLost",
    "CallRefused",
    "Child",
    "ChildFailed",
    "Context",
    "EnteredBy",
    "FeatureMissing",
    "Finished",
    "Memory",
    "Occurrence",
    "OutcomeError",
    "Parked",
    "Received",
    "Result",
    "Signal",
    "Sleep",
    "Slept",
    "StateRef",
    "TimedOut",
    "__version__",
    "on_state",
    "routine",
]

_MODULES = {
    "AsyncContext": "context",
    "AttemptLost": "endings",
    "CallRefused": "endings",
    "Child": "waiting",
    "ChildFailed": "endings",
    "Context": "context",
    "EnteredBy": "context",
    "FeatureMissing": "endings",
    "Finished": "waiting",
    "Memory": "memory",
    "Occurrence": "occurrences",
    "OutcomeError": "states",
    "Parked": "endings",
    "Received": "waiting",
    "Result": "waiting",
    "Signal": "waiting",
    "Sleep": "waiting",
    "Slept": "waiting",
    "StateRef": "states",
    "TimedOut": "waiting",
    "on_state": "marks",
    "routine": "marks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.sdk.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
