"""The one door to YAML: a file as plain values with their lines. It knows nothing of keys and meaning.

YAML 1.2 core scalars only (`on` and `yes` are text); duplicate keys, anchors, aliases, tags and a second
document are refused with their line (A-03).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

BYTES_MAX: Final = 1_048_576
DEPTH_MAX: Final = 16

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BadYaml(Exception):
    """The text is not what is allowed here.

    Args:
        line: where, from 1.
        sentence: what was found and what is allowed.
    """

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the line where it stands (from 1)."""

    value: str | int | float | bool | list[Node] | dict[str, Node] | None
    line: int


def read(text: str, *, depth_max: int = DEPTH_MAX) -> Node:
    """Return the document in `text`; an empty one is null.

    Args:
        text: the file.
        depth_max: how deep mappings and lists may nest.

    Raises:
        BadYaml: with the line.
    """
    try:
        events = list(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(mark.line + 1 if mark else 1, f"this is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadYaml(1, f"this is not YAML: {_first_line(error)}") from None
    documents = [event for event in events if isinstance(event, yaml.DocumentStartEvent)]
    if not documents:
        return Node(None, 1)
    if len(documents) > 1:
        raise BadYaml(_line(documents[1]), "a second document starts here; one is allowed")
    return _node(iter(events[2:]), depth_max)


def _node(events: Iterator[yaml.Event], depth: int) -> Node:
    return _from(next(events), events, depth)


def _from(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
    line = _line(event)
    if depth < 0:
        raise BadYaml(line, "nested too deep")
    anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
    if isinstance(event, yaml.AliasEvent):
        raise BadYaml(line, f"the alias *{anchor} is not allowed; write the value out")
    if anchor:
        raise BadYaml(line, f"the anchor &{anchor} is not allowed; write the value out")
    if tag:
        raise BadYaml(line, f"the tag {tag} is not allowed; write a plain value")
    if isinstance(event, yaml.ScalarEvent):
        return Node(event.value if event.style else _scalar(event), line)
    if isinstance(event, yaml.SequenceStartEvent):
        return Node(list(_items(events, depth - 1)), line)
    return Node(_mapping(events, depth - 1), line)


def _items(events: Iterator[yaml.Event], depth: int) -> Iterator[Node]:
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        yield _from(event, events, depth)


def _mapping(events: Iterator[yaml.Event], depth: int) -> dict[str, Node]:
    found: dict[str, Node] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
            raise BadYaml(_line(event), "a key must be plain text")
        if event.value in found:
            first = found[event.value].line
            raise BadYaml(_line(event), f"the key '{event.value}' stands here again, first in line {first}")
        found[event.value] = _node(events, depth)
    return found


def _scalar(event: yaml.ScalarEvent) -> str | float | bool | None:
    text: str = event.value
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text) and len(text) < 64:
        return int(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
