"""The documented table of events, and a log that makes nobody wait (A-58)."""

from __future__ import annotations

import ast
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateous_supervisor.agent import logs
from stateous_supervisor.agent.logs import EVENTS, Log, StderrLines

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/logs.md"


def rows() -> dict[str, tuple[str, tuple[str, ...], str]]:
    found = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {event: (level, tuple(re.findall(r"`(\w+)`", keys)), when) for event, level, keys, when in found}


def test_the_page_shows_the_table_a_58() -> None:
    assert rows() == {event: tuple(row) for event, row in EVENTS.items()}


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_a_noun_and_a_past_participle(event: str) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+", event)


def test_what_the_agent_tells_is_in_the_table_a_58() -> None:
    told = {
        event
        for file in (ROOT / "stateous_supervisor/agent").glob("*.py")
        for event in re.findall(r'[tT]ell\(\s*"([^"]+)"', file.read_text())
    }

    assert told <= EVENTS.keys()
    assert {"task.claimed", "lease.lost", "task.finished"} <= told


def test_every_row_is_told_somewhere_a_58() -> None:
    rooms = [*ROOT.glob("stateous_supervisor/agent/*.py"), *ROOT.glob("stateous_supervisor/cli/*.py")]
    text = "".join(file.read_text() for file in rooms if file.name != "logs.py")

    assert [event for event in EVENTS if f'"{event}"' not in text] == []


def calls() -> Iterator[tuple[str, set[str | None]]]:
    """Yield each place of the agent that tells an event by name, with its keys (None: `**` stands for more)."""
    for room in ("agent", "cli"):
        for file in (ROOT / "stateous_supervisor" / room).glob("*.py"):
            for call in ast.walk(ast.parse(file.read_text())):
                if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                    keys = {keyword.arg for keyword in call.keywords}
                    if len(call.args) > 1 and isinstance(call.args[1], ast.Dict):  # the effect `Tell`
                        keys |= {key.value for key in call.args[1].keys} | {None}  # type: ignore[union-attr]
                    if call.args[0].value in EVENTS:
                        yield str(call.args[0].value), keys


def test_each_key_that_is_told_is_in_the_table_a_58() -> None:
    told = [(event, key) for event, keys in calls() for key in keys if key is not None]

    assert [(event, key) for event, key in told if key not in EVENTS[event].keys] == []
    assert {("host.ended", "next_in_s"), ("lease.lost", "held_s"), ("claim.refused", "code")} <= set(told)


def test_each_key_of_the_table_is_told_a_58() -> None:
    """Where `**` stands for more, those keys are seen in the logs of real agents."""
    told: dict[str, set[str | None]] = {}
    for event, keys in calls():
        told.setdefault(event, set()).update(keys)

    untold = {event: set(EVENTS[event].keys) - keys for event, keys in told.items() if None not in keys}
    assert {event: keys for event, keys in untold.items() if keys} == {}


def line(**options: object) -> tuple[Log, list[str]]:
    written: list[str] = []
    return Log(written.append, clock=lambda: 1_700_000_000.25, **options), written  # type: ignore[arg-type]


def test_a_line_is_json_with_time_level_and_event() -> None:
    log, written = line(bound={"supervisor": "box"})

    log.tell("task.failed", task=7, error="ValueError: é", traceback=None)

    assert json.loads(written[0]) == {
        "at": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "event": "task.failed",
        "supervisor": "box",
        "task": 7,
        "error": "ValueError: é",
    }


def test_a_line_below_the_level_is_not_written() -> None:
    log, written = line(level="warning")

    log.tell("task.claimed", task=1)

    assert written == []


def test_an_event_that_is_not_in_the_table_cannot_be_told() -> None:
    log, _ = line()

    with pytest.raises(KeyError):
        log.tell("something.happened")


def test_a_huge_value_is_cut_and_the_line_stays_json() -> None:
    log, written = line()

    log.tell("task.failed", traceback="x" * 1_000_000)

    assert len(written[0]) < 2 * logs.TEXT_CHARS_MAX
    assert json.loads(written[0])["traceback"].endswith("[cut]")


def test_a_lone_surrogate_is_no_reason_to_lose_a_line() -> None:
    log, written = line()

    log.tell("host.printed", text="\ud800")

    assert json.loads(written[0])["text"] == "?"


def test_people_get_the_traceback_as_it_is() -> None:
    log, written = line(console=True)

    log.tell("task.failed", task=7, traceback="Traceback:\n  line")

    assert written[0].endswith("Traceback:\n  line")
    assert "\x1b" not in written[0]


def test_lines_reach_the_descriptor_in_order() -> None:
    read, write = os.pipe()
    lines = StderrLines(write)

    for number in range(1000):
        lines.write(str(number))
    lines.close()
    os.close(write)

    with os.fdopen(read) as file:
        assert file.read().split() == [str(number) for number in range(1000)]


def test_a_full_pipe_makes_nobody_wait_and_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LINES_MAX", 100)
    read, write = os.pipe()
    lines = StderrLines(write)
    done = threading.Event()

    def flood() -> None:
        for _ in range(2000):
            lines.write("x" * 1000)
        done.set()

    threading.Thread(target=flood, daemon=True).start()

    assert done.wait(5)
    assert lines._dropped > 0
    os.close(read)
    lines.close()
    os.close(write)


def test_long_lines_that_nobody_reads_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-28: the bound counts characters too, for a routine that prints lines of 16 KB."""
    monkeypatch.setattr(logs, "WAITING_CHARS_MAX", 1_000_000)
    read, write = os.pipe()
    lines = StderrLines(write)

    for _ in range(2_000):
        lines.write("x" * 10_000)

    assert lines._given_chars - lines._taken_chars <= 1_010_000
    assert lines._dropped >= 1_800
    os.close(read)
    lines.close()
    os.close(write)


def test_a_closed_pipe_is_no_fault_of_the_agent() -> None:
    read, write = os.pipe()
    os.close(read)
    lines = StderrLines(write)

    lines.write("nobody reads this")
    lines.close()

    assert not lines._thread.is_alive()
    os.close(write)
