"""`sys.stdout` of a host as a stream (A-21)."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from stateous_supervisor.host.streams import LINE_BYTES_MAX, LineStream, current, uninstall
from stateous_supervisor.link.frames import Logged

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def stream() -> tuple[LineStream, list[Logged]]:
    said: list[Logged] = []
    return LineStream(said.append, "info", 1), said


def test_lines_are_whole() -> None:
    out, said = stream()
    print("a", "b", file=out)
    print("c", end="", file=out)
    print("d\r\ne", file=out, flush=True)
    assert [line.text for line in said] == ["a b", "cd", "e"]


def test_the_open_line_of_an_attempt_is_said_at_its_end() -> None:
    out, said = stream()
    given = current.set((1, 2))
    try:
        out.write("no end")
    finally:
        current.reset(given)
    out.end_line((9, 9))
    assert said == []
    out.end_line((1, 2))
    assert (said[0].text, said[0].task, said[0].attempt) == ("no end", 1, 2)


def test_bytes_and_what_is_no_text_are_taken() -> None:
    out, said = stream()
    out.buffer.write(b"caf\xc3\xa9 \xff\n")
    out.write("\x00\ud800\n")
    assert [line.text for line in said] == ["café \\xff", "\\x00\\ud800"]


def test_an_endless_line_is_cut() -> None:
    out, said = stream()
    out.write("x" * (LINE_BYTES_MAX * 3))
    assert len(said) == 1
    assert "cut" in said[0].text


def test_it_stays_open_and_looks_like_a_stream() -> None:
    out, said = stream()
    out.close()
    print("on", file=out)
    assert said[0].text == "on"
    assert (out.fileno(), out.isatty(), out.writable(), out.encoding, out.closed) == (
        1,
        False,
        True,
        "utf-8",
        False,
    )
    out.reconfigure(line_buffering=True)


def test_a_forked_child_writes_a_line_at_once_also_where_python_is_unbuffered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A-21: lines of several children in one pipe do not run into each other."""
    written: list[bytes] = []

    class Descriptor(io.RawIOBase):
        name = "descriptor"

        def writable(self) -> bool:
            return True

        def write(self, given: ReadableBuffer, /) -> int:
            written.append(bytes(given))
            return len(written[-1])

    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)  # and given back after the test
        monkeypatch.setattr(sys, f"__{name}__", io.TextIOWrapper(Descriptor(), write_through=True))
    uninstall()
    print("one")
    print("two", file=sys.stderr)

    assert written == [b"one\n", b"two\n"]
