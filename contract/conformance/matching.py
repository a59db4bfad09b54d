"""Compare an answer with what is expected of it, and fill names into requests. Pure; called by `play` and by tests.

What a peer may choose freely stands in angle brackets in the expected value: ``<id>``, ``<time>``, ``<sentence>``,
``<checksum>``, ``<number>``, ``<any>``. Names that a scene keeps stand in braces: ``{task}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")
NAME = re.compile(r"\{([a-z][a-z0-9_]*)\}")
MORE = "<more>"


def filled(value: Any, names: dict[str, Any]) -> Any:
    """Return `value` with every ``{name}`` replaced; a string that is nothing but one name takes the name's own type."""
    if isinstance(value, str):
        return _filled_text(value, names)
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    if isinstance(value, dict):
        return {str(_filled_text(key, names)): filled(item, names) for key, item in value.items()}
    return value


def _filled_text(text: str, names: dict[str, Any]) -> Any:
    whole = NAME.fullmatch(text)
    if whole and whole[1] in names:
        return names[whole[1]]
    return NAME.sub(lambda found: str(names.get(found[1], found[0])), text)


def differences(expected: Any, actual: Any, *, where: str = "answer", more: bool = False) -> Iterator[str]:
    """Yield one sentence for each place where `actual` is not what is expected.

    `more` allows keys that are not expected, at this level; inside, an object allows them when it has the key ``<more>``.
    """
    if isinstance(expected, str) and expected.startswith("<"):
        if not _is_kind(expected, actual):
            yield f"{where}: {actual!r} is not {expected}"
    elif isinstance(expected, dict) and isinstance(actual, dict):
        yield from _object_differences(expected, actual, where=where, more=more or MORE in expected)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{where}: {len(actual)} items, expected {len(expected)}: {actual!r}"
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            yield from differences(one, other, where=f"{where}[{index}]")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{where}: {actual!r}, expected {expected!r}"


def _object_differences(
    expected: dict[str, Any], actual: dict[str, Any], *, where: str, more: bool
) -> Iterator[str]:
    wanted = {key: value for key, value in expected.items() if key != MORE}
    for key in wanted.keys() - actual.keys():
        yield f"{where}: no {key!r}"
    if not more:
        for key in actual.keys() - wanted.keys():
            yield f"{where}: {key!r} is not expected"
    for key in wanted.keys() & actual.keys():
        yield from differences(wanted[key], actual[key], where=f"{where}.{key}")


def _is_kind(kind: str, actual: Any) -> bool:
    is_whole = isinstance(actual, int) and not isinstance(actual, bool)
    is_text = isinstance(actual, str)
    kinds: dict[str, Callable[[], bool]] = {
        "<any>": lambda: True,
        "<id>": lambda: is_whole and actual > 0,
        "<number>": lambda: isinstance(actual, int | float) and not isinstance(actual, bool),
        "<sentence>": lambda: is_text and bool(actual.strip()),
        "<time>": lambda: is_text and bool(TIME.fullmatch(actual)),
        "<checksum>": lambda: is_text and bool(CHECKSUM.fullmatch(actual)),
    }
    return kinds[kind]()


def history_differences(expected: list[list[Any]], actual: Any) -> Iterator[str]:
    """Compare a history with ``[kind, data]`` pairs: numbered from 1 without a gap, times never going back."""
    if not isinstance(actual, list):
        yield f"history: {actual!r} is not a list"
        return
    if [entry.get("kind") for entry in actual] != [kind for kind, _ in expected]:
        yield f"history: kinds {[entry.get('kind') for entry in actual]}, expected {[kind for kind, _ in expected]}"
        return
    times = [entry["at"] for entry in actual]
    if not all(TIME.fullmatch(at) for at in times):
        yield f"history: not all are times: {times}"
    for number, (entry, (kind, data)) in enumerate(zip(actual, expected, strict=True), start=1):
        wanted = {"seq": number, "at": "<time>", "kind": kind, "data": data}
        yield from differences(wanted, entry, where=f"history[{number}]")
