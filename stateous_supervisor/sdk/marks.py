"""How a function says what it is the routine of: ``@on_state(states.testing)``, ``@routine("reports.publish")``.

Marking changes nothing but one attribute; nothing is registered on import. The host finds marked functions, and
those that the published package's decorator marked, in the modules of the folder.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final, Literal, Protocol, TypeVar, overload

from stateous_contract.limits import DURATION_PATTERN, DURATION_S_MAX, ROUTINE_PATTERN

from stateous_supervisor.sdk.states import O, StateRef

MARK: Final = "__stateous_routine__"
# The attribute of the published package: the state itself.
THEIR_MARK: Final = "__stateous_implements__"
VERSION_MAX: Final = 2**31 - 1

C = TypeVar("C")
F = TypeVar("F", bound=Callable[[Any, Any], Any])

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PLAIN: Final = (None, Any, object, dict, list, str, int, float, bool, type(None), Mapping, Sequence)
_ROUTINE: Final = re.compile(ROUTINE_PATTERN, re.ASCII)


@dataclass(frozen=True)
class RoutineRef:
    """A routine without a graph. `name` is what it is served as: ``@`` and the routine's name, as no state is named."""

    routine: str

    @property
    def name(self) -> str:
        return f"@{self.routine}"


@dataclass(frozen=True)
class Mark:
    """What a function is marked with. `state` is a state, with `name` and `emits`, or a `RoutineRef`.

    `timeout_s` is None without a limit. `is_strict`: a replay that does not come by what was passed parks the task.
    """

    state: Any
    isolation: str | None
    timeout_s: float | None
    version: int
    function: Any
    is_strict: bool = False


class Marking(Protocol[O]):
    """The decorator for one state: it takes `def` and `async def` routines that return its events or None."""

    @overload
    def __call__(
        self, routine: Callable[[C], Coroutine[Any, Any, O | None]], /
    ) -> Callable[[C], Coroutine[Any, Any, O | None]]: ...
    @overload
    def __call__(self, routine: Callable[[C], O | None], /) -> Callable[[C], O | None]: ...


def on_state(
    state: StateRef[O],
    *,
    isolation: Literal["thread", "process"] | None = None,
    timeout: float | str | None = None,
    version: int = 1,
    strict: bool = False,
) -> Marking[O]:
    """Mark a function as the routine of `state` (S3-63).

    Args:
        state: one of ``contract.states``.
        isolation: ``process`` for a process of its own. `stateous.yaml` may say otherwise.
        timeout: the longest that one attempt may run: seconds, or text such as ``"30s"``, ``"10m"``.
        version: of the handler, for durable routines; 1 or more.
        strict: whether a replay that does not come by what was passed parks the task until a person resumes it, with
            the reason ``nondeterminism:{step}`` (S2-13). Otherwise it is logged and counted, and the routine goes on.

    Raises:
        TypeError: `state` is no state of a contract, `strict` is no bool, or the function cannot be marked.
        ValueError: another argument is out of its bounds.
    """
    if not is_state(state):
        raise TypeError(f"on_state takes a state of contract.states, not {_kind(state)}")
    return typing.cast("Marking[O]", _marking(state, isolation, timeout, version, strict))


def routine(
    name: str,
    *,
    version: int = 1,
    isolation: Literal["thread", "process"] | None = None,
    timeout: float | str | None = None,
    strict: bool = False,
) -> Callable[[F], F]:
    """Mark a function as a routine without a graph: it takes context and input, and returns a JSON result (S2-11).

    Args:
        name: of the routine, by which it is started: ``reports.publish``.
        version: of the handler; 1 or more. A folder may have several versions, each a function (S2-21, S2-52).
        isolation: as for `on_state`.
        timeout: as for `on_state`; time in which it is parked does not count.
        strict: as for `on_state`.

    Raises:
        TypeError: `strict` is no bool, or the function cannot be marked.
        ValueError: an argument is out of its bounds.
    """
    if not isinstance(name, str) or _ROUTINE.fullmatch(name) is None:
        raise ValueError(
            f"the name of a routine is {name!r:.150}; it must start with a letter or digit and have up to 127 more "
            "letters, digits, '.', '_' and '-'"
        )
    return typing.cast("Callable[[F], F]", _marking(RoutineRef(name), isolation, timeout, version, strict))


def routine_named(given: Any, version: int) -> tuple[Any, int]:
    """Return name and version of a marked routine; a name, as it is, with the version that goes with it."""
    mark = None if isinstance(given, str) else mark_of(given)
    if mark is None or not isinstance(mark.state, RoutineRef):
        return given, version
    return mark.state.routine, mark.version


def _marking(
    state: Any, isolation: str | None, timeout: float | str | None, version: int, is_strict: object
) -> Any:
    if isolation not in (None, "thread", "process"):
        raise ValueError(f"isolation is {isolation!r}; it must be 'thread' or 'process'")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION_MAX:
        raise ValueError(f"version is {version!r}; it must be an integer of 1 or more")
    if not isinstance(is_strict, bool):
        raise TypeError(f"strict is {is_strict!r:.150}; it must be True or False")
    timeout_s = None if timeout is None else duration_s(timeout, "timeout")

    def mark(routine: Any) -> Any:
        _put(routine, Mark(state, isolation, timeout_s, version, routine, is_strict))
        return routine

    return mark


def mark_of(thing: Any) -> Mark | None:
    """Return how `thing` is marked, by this package or the published one, or None.

    Only its own attributes are looked at: a lazy object in a module must not be woken.
    """
    attributes = _own(thing)
    ours = attributes.get(MARK)
    if isinstance(ours, Mark):
        return ours
    theirs = attributes.get(THEIR_MARK)
    return Mark(theirs, None, None, 1, thing) if theirs is not None and is_state(theirs) else None


def is_state(thing: Any) -> bool:
    """Whether it is a state of a contract, made by this package or by the published one."""
    if isinstance(thing, StateRef):
        return True
    is_theirs = type(thing).__name__ == "StateRef" and type(thing).__module__.partition(".")[0] == "stateous"
    return is_theirs and isinstance(thing.name, str) and isinstance(thing.emits, tuple)


def duration_s(given: Any, what: str) -> float:
    """Return seconds for a number of them or for text such as ``"30s"``. Raises ValueError."""
    if isinstance(given, str) and re.fullmatch(DURATION_PATTERN, given):
        seconds = float(int(given[:-1]) * _UNITS[given[-1]])
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    else:
        raise ValueError(
            f"{what} is {given!r}; it must be seconds, or a whole number with s, m, h or d: '30s'"
        )
    if not 0 < seconds <= DURATION_S_MAX:
        raise ValueError(
            f"{what} is {given!r}; it must be above 0 and at most {DURATION_S_MAX // 86_400} days"
        )
    return seconds


def is_duration(given: object) -> bool:
    """Whether it is a time as the wire has it: ``30s``, ``10m``, ``2h``, ``7d``."""
    is_text = isinstance(given, str) and re.fullmatch(DURATION_PATTERN, given) is not None
    return is_text and int(str(given)[:-1]) * _UNITS[str(given)[-1]] <= DURATION_S_MAX


def context_model(function: Any) -> Any:
    """Return the model that a routine's first parameter names (``Context[Ticket]``), or None."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # Annotations are user code, and a routine runs without any of them.
        return None
    for name, hint in hints.items():
        if name != "return":
            arguments = typing.get_args(hint)
            return arguments[0] if arguments and arguments[0] is not Any else None
    return None


def input_model(function: Any) -> Any:
    """Return the type that a routine's second parameter names; None: it takes its input as plain JSON values.

    A TypedDict is plain: it says what is there and checks nothing.
    """
    try:
        hints = typing.get_type_hints(function)
        name = list(inspect.signature(function).parameters)[1]
    except Exception:  # Annotations are user code, and a routine runs without any of them.
        return None
    hint = hints.get(name)
    is_plain = (typing.get_origin(hint) or hint) in _PLAIN or typing.is_typeddict(hint)
    return None if is_plain else hint


def _put(routine: Any, mark: Mark) -> None:
    if isinstance(routine, type) or not callable(routine):
        raise TypeError(f"a mark goes on a function, not on {_kind(routine)}")
    before = mark_of(routine)
    if before is not None and before.function is routine:
        raise TypeError(
            f"{_kind(routine)} is the routine of {before.state.name!r} already; a routine has one mark"
        )
    try:
        setattr(routine, MARK, mark)
    except AttributeError:
        raise TypeError(f"a mark goes on a function; {_kind(routine)} takes no attributes") from None


def _own(thing: Any) -> dict[str, Any]:
    if isinstance(thing, MethodType):
        thing = thing.__func__
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _kind(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None)
    kind = type(thing).__name__
    return f"the {kind} {name!r}" if isinstance(name, str) else f"a value of type {kind}"
