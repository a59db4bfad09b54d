"""Reads the bytes of a workflow file, YAML or JSON, into the JSON document that it stands for.

The only door to the YAML library in this room. YAML means the scalars of 1.2's core schema, so ``on`` and
``yes`` are plain text; duplicate keys, anchors, aliases and tags are refused with their line. JSON is read by
a JSON parser, so 1 and 1.0 keep their difference. What a document means is `loading.py`'s business.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import yaml
from stateous_contract.limits import BODY_BYTES_MAX, DEPTH_MAX, INTEGER_DIGITS_MAX

from stateous_control.graph.document import Fault, Path, WorkflowInvalid

WORKFLOW_BYTES_MAX: Final = BODY_BYTES_MAX
_INTEGER_END: Final = 10**INTEGER_DIGITS_MAX
_TOO_DEEP: Final = f"it is nested more than {DEPTH_MAX} levels deep"

# The scalars of YAML 1.2's core schema; whatever matches none of them is text.
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OCTAL: Final = re.compile(r"0o[0-7]+", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """A workflow file as read.

    Args:
        document: the JSON value that the file stands for.
        kind: which language the file is written in.
        lines: the line of each place in the file, from 1; empty for JSON.
    """

    document: Any
    kind: Literal["yaml", "json"]
    lines: Mapping[Path, int] = field(default_factory=dict, repr=False)

    def line_of(self, path: Path) -> int | None:
        """Return the line of `path`, or of the nearest thing around it that the file has; None for JSON."""
        while path not in self.lines:
            if not path:
                return None
            path = path[:-1]
        return self.lines[path]


def read_source(data: bytes, *, name: str = "workflow.yaml") -> Source:
    """Read a workflow file. `name` decides by its ending: ``.json`` is JSON, ``.yaml`` and ``.yml`` are YAML.

    With any other ending, a file that begins with a brace is JSON. Raises WorkflowInvalid.
    """
    if len(data) > WORKFLOW_BYTES_MAX:
        raise _invalid(f"the file has {len(data)} bytes; at most {WORKFLOW_BYTES_MAX} are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _invalid("the file is not UTF-8", line=line) from None
    source = _read_json(text) if _is_json(text, name) else _read_yaml(text)
    flaws = [Fault(message, path, source.line_of(path)) for path, message in _flaws(source.document)]
    if flaws:
        raise WorkflowInvalid(flaws)
    return source


def _is_json(text: str, name: str) -> bool:
    ending = name.rpartition(".")[2].lower()
    if ending in ("json", "yaml", "yml"):
        return ending == "json"
    return text.lstrip().startswith("{")


def _invalid(message: str, *, line: int | None = None) -> WorkflowInvalid:
    return WorkflowInvalid([Fault(message, (), line)])


def _flaws(document: Any) -> Iterator[tuple[Path, str]]:
    """Find text that cannot be sent as UTF-8, and nesting that no reader of the document would take."""
    level: list[tuple[Path, Any]] = [((), document)]
    for depth in range(DEPTH_MAX + 1):
        below: list[tuple[Path, Any]] = []
        for path, value in level:
            if depth == DEPTH_MAX and isinstance(value, (dict, list)):
                yield path[:1], _TOO_DEEP
                return
            if isinstance(value, str) and not _is_unicode(value):
                yield path, "a text holds a lone surrogate"
            if isinstance(value, dict) and not all(_is_unicode(key) for key in value):
                yield path, "a key holds a lone surrogate"
            below += _inside(path, value)
        level = below


def _inside(path: Path, value: Any) -> list[tuple[Path, Any]]:
    if isinstance(value, dict):
        return [((*path, key), item) for key, item in value.items()]
    if isinstance(value, list):
        return [((*path, position), item) for position, item in enumerate(value)]
    return []


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    return not any("\ud800" <= character <= "\udfff" for character in text)


# JSON


def _read_json(text: str) -> Source:
    try:
        document = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_int=_integer,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise _invalid(f"the file is not JSON: {error.msg}", line=error.lineno) from None
    except RecursionError:
        raise _invalid(_TOO_DEEP) from None
    return Source(document, "json")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _invalid(f"the key {twice[:80]!r} stands twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _invalid(f"the number {text[:40]} is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > INTEGER_DIGITS_MAX:
        raise _invalid(f"a number has {len(text)} digits; at most {INTEGER_DIGITS_MAX} are read")
    return int(text)


def _refuse_constant(text: str) -> Any:
    raise _invalid(f"{text} is no number that JSON has")


# YAML


def _read_yaml(text: str) -> Source:
    builder = _Builder(text)
    try:
        document = builder.document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _invalid(f"the file holds {_code(error)}, which YAML does not allow", line=line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        about = " ".join(part for part in (error.context, error.problem) if part)
        raise _invalid(f"the file is not YAML: {about}", line=mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise _invalid("the file is not YAML") from None
    if builder.faults:
        raise WorkflowInvalid(builder.faults)
    return Source(document, "yaml", builder.lines)


def _code(error: yaml.reader.ReaderError) -> str:
    character = error.character
    return f"U+{ord(character):04X}" if isinstance(character, str) else f"U+{character:04X}"


class _Builder:
    """Builds the document from parse events: anchors, tags and depth are seen before anything is made."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []

    def document(self) -> Any:
        next(self._events)  # the stream starts
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise _invalid("the file is empty")
        value = self._value(next(self._events), ())
        next(self._events)  # the document ends
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._fault("the file holds more than one document", (), event)
        return value

    def _value(self, event: Any, path: Path) -> Any:
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            self._fault(f"the alias *{event.anchor} is not allowed; write the value out", path, event)
            return None
        if event.anchor is not None:
            self._fault(f"the anchor &{event.anchor} is not allowed; write each value out", path, event)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._fault(f"the tag {tag} is not allowed", path, event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if len(path) >= DEPTH_MAX:
            raise _invalid(_TOO_DEEP, line=event.start_mark.line + 1)
        return self._mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._sequence(path)

    def _mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in iter(self._events):
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, path)
            inner: Path = (*path, key)
            line = event.start_mark.line + 1
            if key in found:
                self._fault(f"the key {key!r} stands twice; first on line {self.lines[inner]}", inner, event)
            self.lines.setdefault(inner, line)
            found[key] = self._value(next(self._events), inner)
        return found

    def _key(self, event: Any, path: Path) -> str:
        key = self._value(event, (*path, ""))
        self.lines.pop((*path, ""), None)
        if isinstance(key, str):
            return key
        self._fault("a key must be text; write it in quotes", path, event)
        return f"\0{len(self.faults)}"  # a place of its own, so that the rest can still be read

    def _sequence(self, path: Path) -> list[Any]:
        found: list[Any] = []
        for event in iter(self._events):
            if isinstance(event, yaml.SequenceEndEvent):
                break
            found.append(self._value(event, (*path, len(found))))
        return found

    def _scalar(self, event: Any, path: Path) -> Any:
        text: str = event.value
        if event.style is not None:
            return _joined(text)
        try:
            return _plain(text)
        except ValueError as error:
            self._fault(str(error), path, event)
            return None

    def _fault(self, message: str, path: Path, event: Any) -> None:
        self.faults.append(Fault(message, path, event.start_mark.line + 1))


def _plain(text: str) -> Any:
    """Resolve a scalar without quotes as YAML 1.2's core schema does. Raises ValueError with a sentence."""
    if text in _WORDS:
        return _WORDS[text]
    if _DECIMAL.fullmatch(text):
        return _bounded(text, 10)
    if _OCTAL.fullmatch(text):
        return _bounded(text, 8)
    if _HEXADECIMAL.fullmatch(text):
        return _bounded(text, 16)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is no number that JSON has")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError(f"the number {text[:40]} is too large")
        return number
    return text


def _bounded(text: str, base: int) -> int:
    if len(text) > INTEGER_DIGITS_MAX or abs(number := int(text, base)) >= _INTEGER_END:
        raise ValueError(f"a number has more than {INTEGER_DIGITS_MAX} digits")
    return number


def _joined(text: str) -> str:
    r"""Join what was written as two ``\u`` escapes into the character that they stand for, as JSON does."""
    if _is_unicode(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
