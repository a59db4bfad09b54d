"""An exception as text, safely: what goes into the report, and the traceback for the log (A-19).

An exception is user code. Its `__str__` may raise, hang or give 50 MB; its chain may be a circle or 5,000 links long.
Nothing here raises, and all of it together takes at most `ASK_S`.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, Final

from stateous_contract.limits import ERROR_BYTES_MAX

ASK_S: Final = 2.0
TRACEBACK_BYTES_MAX: Final = 32_768
LINKS_MAX: Final = 8
INNER_MAX: Final = 3
FRAMES_MAX: Final = 40

_PLAIN: Final = (str, int, float, bool, bytes, type(None))
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"


@dataclass(frozen=True)
class Described:
    """`text` is ``Type: message``, at most 8 KB; `traceback` is for the log."""

    text: str
    traceback: str


@dataclass
class _Asking:
    """Asks exceptions for their text, within one time for all of them."""

    until: float
    texts: dict[int, str] = field(default_factory=dict)

    def text(self, error: BaseException) -> str:
        if id(error) not in self.texts:
            self.texts[id(error)] = self._ask(error)
        return self.texts[id(error)]

    def _ask(self, error: BaseException) -> str:
        name = type_name(error)
        if is_plain(error):
            message = _message(error)
        else:
            left_s = self.until - monotonic()
            given = _bounded(lambda: _message(error), left_s) if left_s > 0 else None
            message = given if given is not None else f"its text was not to be had within {ASK_S:g} s"
        return f"{name}: {message}" if message else name


def describe(error: BaseException) -> Described:
    """Return what is to be said about `error`. It may take up to `ASK_S`, unless `is_plain(error)`."""
    asking = _Asking(monotonic() + ASK_S)
    try:
        text = asking.text(error) + _inner_text(error, asking)
    except BaseException:
        text = type_name(error)
    try:
        traceback = "".join(_chain(error, asking))
    except BaseException:
        traceback = ""
    return Described(clean(text, ERROR_BYTES_MAX), clean(traceback, TRACEBACK_BYTES_MAX))


def is_plain(error: BaseException) -> bool:
    """Whether its text can be had without running user code."""
    try:
        is_builtin = type(error).__module__ == "builtins" and not isinstance(error, BaseExceptionGroup)
        return is_builtin and all(type(each) in _PLAIN for each in error.args) and _is_short(error)
    except BaseException:
        return False


def type_name(error: BaseException) -> str:
    """Return the name of its class, whatever the class says about itself."""
    name = type.__dict__["__name__"].__get__(type(error))
    return name if isinstance(name, str) else "Exception"


def clean(text: str, bytes_max: int) -> str:
    """Return `text` as it may stand in JSON and in a database, with a mark where it was cut."""
    size = len(text)
    text = text[:bytes_max].replace("\x00", "\\x00")
    encoded = text.encode("utf-8", "backslashreplace")
    if size <= bytes_max and len(encoded) <= bytes_max:
        return encoded.decode()
    mark = f" … [cut: {size:,} characters in all]"
    return encoded[: bytes_max - len(mark.encode())].decode(errors="ignore") + mark


def _is_short(error: BaseException) -> bool:
    # Notes are joined, and a chain behind it is looked at too: both may be user code.
    return error.__cause__ is None and error.__context__ is None and not hasattr(error, "__notes__")


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:
        return f"its text was not to be had: __str__ raised {type_name(broken)}"
    if len(text) <= ERROR_BYTES_MAX:
        return str.__str__(text)
    return f"{text[: ERROR_BYTES_MAX - 512]} … [cut: {len(text):,} characters in all]"


def _bounded(ask: Callable[[], str], limit_s: float) -> str | None:
    """Call `ask` in a thread that is left behind when it does not return in time."""
    answers: list[str] = []
    is_over = threading.Event()

    def call() -> None:
        try:
            answers.append(ask())
        finally:
            is_over.set()

    threading.Thread(target=call, name="exception text", daemon=True).start()
    is_over.wait(limit_s)
    return answers[0] if answers else None


def _inner_text(error: BaseException, asking: _Asking) -> str:
    """Of a group: what the first few in it are."""
    if not isinstance(error, BaseExceptionGroup):
        return ""
    return "".join(f"; {asking.text(each)}" for each in error.exceptions[:INNER_MAX])


def _chain(error: BaseException, asking: _Asking) -> Iterator[str]:
    """Yield the traceback's parts, causes first, as Python would, but bounded."""
    links: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    current: BaseException | None = error
    joint = ""
    while current is not None and id(current) not in seen and len(links) < LINKS_MAX:
        seen.add(id(current))
        links.append((current, joint))
        cause = current.__cause__
        joint = _CAUSE if cause is not None else _CONTEXT
        current = (
            cause if cause is not None else None if current.__suppress_context__ else current.__context__
        )
    if current is not None:
        yield "(what came before is not shown)\n" + joint
    for link, after in reversed(links):
        yield from _one(link, asking, "")
        yield after


def _one(error: BaseException, asking: _Asking, indent: str) -> Iterator[str]:
    yield f"{indent}Traceback (most recent call last):\n"
    for line in _frames(error.__traceback__):
        yield f"{indent}{line}\n"
    yield f"{indent}{asking.text(error)}\n"
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        yield from (f"{indent}{note[:ERROR_BYTES_MAX]}\n" for note in notes[:LINKS_MAX] if type(note) is str)
    if isinstance(error, BaseExceptionGroup) and len(indent) < 8:
        for number, each in enumerate(error.exceptions[:INNER_MAX], 1):
            yield f"{indent}  --- {number} of {len(error.exceptions)} ---\n"
            yield from _one(each, asking, indent + "    ")


def _frames(traceback: TracebackType | None) -> list[str]:
    """The outermost quarter and the innermost rest, without our own frames at the top."""
    places: list[tuple[str, int, str]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if places or code.co_filename not in _OWN_FILES:
            places.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    if len(places) <= FRAMES_MAX:
        return [_frame(*place) for place in places]
    first, last = places[: FRAMES_MAX // 4], places[-FRAMES_MAX * 3 // 4 :]
    left_out = len(places) - len(first) - len(last)
    return [
        *(_frame(*place) for place in first),
        f"  ({left_out} frames are not shown)",
        *(_frame(*place) for place in last),
    ]


def _frame(file: str, line: int, name: str) -> str:
    source = linecache.getline(file, line).strip()
    return f'  File "{file}", line {line}, in {name}' + (f"\n    {source[:200]}" if source else "")


_OWN_FILES: set[str] = set()


def leave_out(file: str) -> None:
    """Leave frames of `file` out of the top of every traceback: the runner's own say nothing to anybody."""
    _OWN_FILES.add(file)


def own(value: Any) -> str:
    """Show a plain value in a sentence, and only the type of any other."""
    if type(value) in _PLAIN:
        shown = repr(value[:80] if isinstance(value, str | bytes) else value)
        return f"{shown[:100]} ({type(value).__name__})" if value is not None else "None"
    return f"a value of type {type.__dict__['__name__'].__get__(type(value))}"
