"""What is kept of a routine's output: by task and attempt, in bounds, and nobody waits for the disk (A-63)."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stateous_supervisor.agent import output
from stateous_supervisor.agent.logs import LINES_MAX, WAITING_CHARS_MAX
from stateous_supervisor.agent.output import Line, Output, kept, read
from stateous_supervisor.host.link import LOG_LINES_MAX
from stateous_supervisor.host.streams import LINE_BYTES_MAX


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "GATHER_S", 0.0)


@contextmanager
def keeping(folder: Path) -> Iterator[Output]:
    """An output that has written everything at the end."""
    made = Output(folder)
    yield made
    made.close(wait_s=20)


def texts(folder: Path, task: int) -> list[list[str]]:
    return [[line.text for line in each.lines] for each in read(folder, task)]


def test_lines_are_kept_by_task_and_attempt_in_order(tmp_path: Path) -> None:
    with keeping(tmp_path) as made:
        for number in range(100):
            made.take((7, 1), "info", f"first {number}")
            made.take((7, 2), "warning", f"second {number}")
        made.take((70, 1), "info", "another task")

    first, second = read(tmp_path, 7)
    assert [line.text for line in first.lines] == [f"first {number}" for number in range(100)]
    assert (second.attempt, second.lines[99].text, second.lines[99].level) == (2, "second 99", "warning")
    assert texts(tmp_path, 70) == [["another task"]]
    assert kept(tmp_path) == [(7, 1), (7, 2), (70, 1)]


def test_the_page_says_the_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/logs.md").read_text()
    bounds = {
        "one line": LINE_BYTES_MAX,
        "one attempt": output.ATTEMPT_BYTES_MAX,
        "attempts": output.ATTEMPTS_MAX,
        "all together": output.BYTES_MAX,
        "waiting for the disk": output.WAITING_BYTES_MAX,
        "waiting in one host": LOG_LINES_MAX,
    }
    for what, bound in bounds.items():
        assert f"| {what} | {bound:,} " in page
    assert f"at most {LINES_MAX:,} lines or {WAITING_CHARS_MAX // 1_048_576} MB wait" in page


def test_only_the_agents_user_may_read_them(tmp_path: Path) -> None:
    with keeping(tmp_path) as made:
        made.take((1, 1), "info", "perhaps a secret")

    assert stat.S_IMODE((tmp_path / "output").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "output/1-1.log").stat().st_mode) == 0o600


def test_nothing_is_made_before_the_first_line(tmp_path: Path) -> None:
    with keeping(tmp_path):
        pass

    assert list(tmp_path.iterdir()) == []
    assert read(tmp_path, 1) == []


def test_of_a_long_output_the_newest_is_kept_and_the_mark_counts_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "HALF_BYTES_MAX", 2_000)
    with keeping(tmp_path) as made:
        for number in range(1_000):
            made.take((1, 1), "info", f"line {number}")

    (printed,) = read(tmp_path, 1)
    numbers = [int(line.text.split()[1]) for line in printed.lines]
    assert numbers == list(range(1_000 - len(numbers), 1_000))
    assert printed.earlier == 1_000 - len(numbers) > 900
    assert sum(each.stat().st_size for each in (tmp_path / "output").iterdir()) < 2 * 2_000 + 200


def test_the_oldest_attempts_go_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ATTEMPTS_MAX", 10)
    with keeping(tmp_path) as made:
        for task in range(100):
            made.take((task, 1), "info", "said")
    with keeping(tmp_path) as made:  # another process, which finds what the first one kept
        made.take((100, 1), "info", "said")

    assert [task for task, _ in kept(tmp_path)] == list(range(91, 101))
    assert made._last.keys() == {(100, 1)}


def test_the_oldest_attempts_go_when_they_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "BYTES_MAX", 10_000)
    with keeping(tmp_path) as made:
        for task in range(50):
            made.take((task, 1), "info", "x" * 900)

    assert [task for task, _ in kept(tmp_path)] == list(range(41, 50)) or kept(tmp_path)[-1] == (49, 1)
    assert sum(each.stat().st_size for each in (tmp_path / "output").iterdir()) <= 10_000


def test_a_disk_that_takes_nothing_holds_nobody_up_and_what_is_missing_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-28: the writer hangs; memory stays bounded, and the caller never waits."""
    monkeypatch.setattr(output, "WAITING_BYTES_MAX", 10_000)
    is_begun, goes_on = threading.Event(), threading.Event()
    append = output._append_whole

    def hang(path: Path, text: bytes) -> None:
        is_begun.set()
        goes_on.wait(30)
        append(path, text)

    monkeypatch.setattr(output, "_append_whole", hang)
    with keeping(tmp_path) as made:
        made.take((1, 1), "info", "the first")
        assert is_begun.wait(30)
        for _ in range(5_000):
            made.take((1, 1), "info", "x" * 100)
        assert sum(len(line.text) for _, line in made._waiting) <= 10_100
        goes_on.set()
    with keeping(tmp_path) as made:
        made.take((1, 1), "info", "the last")

    (printed,) = read(tmp_path, 1)
    (mark,) = [line for line in printed.lines if line.dropped]
    said = [line for line in printed.lines if not line.dropped]
    assert said[0].text == "the first"
    assert said[-1].text == "the last"
    assert len(said) + mark.dropped == 5_002
    assert made.last((1, 1)) == (1, "the last")


def test_lines_that_nothing_follows_are_marked_too(tmp_path: Path) -> None:
    files = output._Files(tmp_path / "output")
    files.write([((1, 1), Line("", "info", "waited"))], {(1, 1): 3, (2, 1): 4})

    assert [(line.text == "waited", line.dropped) for line in read(tmp_path, 1)[0].lines] == [
        (True, 0),
        (False, 3),
    ]
    assert [line.dropped for line in read(tmp_path, 2)[0].lines] == [4]


def test_what_a_full_disk_refused_is_marked_when_it_takes_lines_again(tmp_path: Path) -> None:
    """BH-031: it goes on by itself when there is space."""
    folder = tmp_path / "output"
    folder.write_text("a file where the folder should be")
    files = output._Files(folder)
    files.write([((1, 1), Line("", "info", "lost")), ((1, 1), Line("", "info", "lost too"))], {})
    folder.unlink()
    files.write([((1, 1), Line("", "info", "kept"))], {})

    (printed,) = read(tmp_path, 1)
    assert [(line.text, line.dropped) for line in printed.lines][1:] == [("kept", 0)]
    assert printed.lines[0].dropped == 2


def test_a_disk_that_takes_a_part_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    output._append_whole(file, b"whole\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:3]))

    with pytest.raises(OSError, match="a part only"):
        output._append_whole(file, b"torn\n")

    assert file.read_bytes() == b"whole\n"


def test_a_line_that_a_crash_tore_is_passed_over(tmp_path: Path) -> None:
    with keeping(tmp_path) as made:
        made.take((1, 1), "info", "whole")
    with (tmp_path / "output/1-1.log").open("a") as file:
        file.write('{"at":"2026-')

    assert texts(tmp_path, 1) == [["whole"]]


def test_text_that_is_no_utf_8_is_no_reason_to_lose_a_line(tmp_path: Path) -> None:
    with keeping(tmp_path) as made:
        made.take((1, 1), "info", "lone \ud800")
        made.take((1, 1), "info", "next")

    assert texts(tmp_path, 1) == [["lone ?", "next"]]
