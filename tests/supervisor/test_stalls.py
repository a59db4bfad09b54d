"""What is said about a host that hangs, when, and what is not claimed meanwhile (A-22, BH-022)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from stateous_supervisor.agent import dumps
from stateous_supervisor.agent.dumps import Hang, Line
from stateous_supervisor.agent.logs import Log
from stateous_supervisor.agent.stalls import Stalls
from stateous_supervisor.link.frames import Pulse, RoutineFacts

LATE = Pulse(loop_lag_s=1.2, stack="coding.py:7 (coding)", task=5, attempt=1)
FINE = Pulse(loop_lag_s=0.001)


def routine(state: str, *, is_async: bool, isolation: str | None = None) -> RoutineFacts:
    return RoutineFacts(
        state=state, file=f"{state}.py", line=1, name=state, is_async=is_async, isolation=isolation
    )


class Watched:
    generation = 1
    has_pulse = False
    routines: Sequence[RoutineFacts] = (
        routine("coding", is_async=True),
        routine("testing", is_async=False),
        routine("apart", is_async=True, isolation="process"),
    )

    def __init__(self) -> None:
        self.hanging: Hang | None = None
        self.asked = 0

    async def hang(self) -> Hang | None:
        self.asked += 1
        return self.hanging


class Watch:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.changes: list[list[str]] = []
        self.host = Watched()
        log = Log(lambda _: None)
        log.tell = lambda event, /, **keys: self.told.append((event, keys))  # type: ignore[method-assign]
        self.stalls = Stalls(
            self.host,
            log,
            running=lambda state: [(5, 1), (6, 1)] if state == "coding" else [(8, 2)],
            names=lambda key: {"task": key[0], "attempt": key[1]},
            changed=lambda: self.changes.append(sorted(self.stalls.paused)),
            silent=lambda _: None,
        )

    @property
    def blocked(self) -> list[dict[str, Any]]:
        return [keys for event, keys in self.told if event == "host.blocked"]


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_blocked_loop_is_told_with_place_task_and_time(watch: Watch) -> None:
    watch.stalls.take(LATE, now=10.0)
    (told,) = watch.blocked
    assert (told["place"], told["task"], told["attempt"], told["what"]) == (
        "coding.py:7 (coding)",
        5,
        1,
        "loop",
    )
    assert told["blocked_s"] == 1.2


def test_it_is_told_again_at_growing_intervals(watch: Watch) -> None:
    for half_seconds in range(240):
        now = 10.0 + half_seconds / 2
        watch.stalls.take(Pulse(loop_lag_s=1.2 + half_seconds / 2, stack="a.py:1 (a)"), now)
    assert [told["blocked_s"] for told in watch.blocked] == [1.2, 3.2, 7.2, 15.2, 31.2, 63.2]


def test_it_is_cleared_once_when_it_ends(watch: Watch) -> None:
    watch.stalls.take(LATE, now=10.0)
    watch.stalls.take(FINE, now=14.0)
    watch.stalls.take(FINE, now=14.5)
    cleared = [keys for event, keys in watch.told if event == "host.unblocked"]
    assert cleared == [{"host": 1, "blocked_s": 5.2}]


def test_claims_of_async_states_pause_while_the_loop_is_blocked(watch: Watch) -> None:
    """Those of `def` and of isolated routines go on."""
    watch.stalls.take(LATE, now=10.0)
    watch.stalls.take(LATE, now=10.5)
    watch.stalls.take(FINE, now=11.0)
    assert watch.changes == [["coding"], []]


def jumping(main: Any) -> None:
    anyio.run(main, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})


def silent(watch: Watch, for_s: float) -> None:
    async def main() -> None:
        over = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.stalls.watch, lambda: not over.is_set())
            watch.stalls.take(FINE, anyio.current_time())
            await anyio.sleep(for_s)
            over.set()

    jumping(main)


def test_a_host_that_says_nothing_is_told_within_two_seconds(watch: Watch) -> None:
    """BH-022: the interpreter's lock is held, so it cannot say so itself."""
    watch.host.hanging = Hang("testing.py:9 (testing)", [Line("testing.py", 9, "testing", is_in_folder=True)])
    silent(watch, 2.0)
    (told,) = watch.blocked
    assert (told["what"], told["place"], told["task"], told["attempt"]) == (
        "host",
        "testing.py:9 (testing)",
        8,
        2,
    )
    assert told["blocked_s"] < 2.0


def test_all_attempts_that_it_can_be_are_named(watch: Watch) -> None:
    watch.host.hanging = Hang("coding.py:9 (coding)", [Line("coding.py", 9, "coding", is_in_folder=True)])
    silent(watch, 2.0)
    assert watch.blocked[0]["tasks"] == [5, 6]
    assert "task" not in watch.blocked[0]


def test_nothing_is_claimed_for_a_host_that_says_nothing(watch: Watch) -> None:
    silent(watch, 2.0)
    assert watch.changes == [["apart", "coding", "testing"]]


def test_a_silent_host_is_asked_only_as_often_as_it_is_told(watch: Watch) -> None:
    silent(watch, 60.0)
    assert watch.host.asked == len(watch.blocked) == 5


def test_a_host_that_is_silenced_before_its_first_pulse_is_told(watch: Watch) -> None:
    watch.host.has_pulse = True

    async def main() -> None:
        with anyio.move_on_after(2.0):
            await watch.stalls.watch(lambda: True)

    jumping(main)
    assert len(watch.blocked) == 1


def test_a_host_without_a_pulse_is_not_watched(watch: Watch) -> None:
    """A double, or one that is older than pulses."""

    async def main() -> None:
        with anyio.move_on_after(60):
            await watch.stalls.watch(lambda: True)

    jumping(main)
    assert watch.told == []


DUMP = """
Thread 0x00007f1663d1c6c0 (most recent call first):
  File "/box/_shared.py", line 3 in idle
  File "/usr/lib/python3.13/threading.py", line 992 in run

Current thread 0x00007f166451d6c0 (most recent call first):
  File "/usr/lib/python3.13/re/__init__.py", line 167 in match
  File "/box/testing.py", line 12 in matched
  File "/box/testing.py", line 9 in testing
  File "/site-packages/stateous_supervisor/host/runner.py", line 294 in _run_sync
"""


def test_the_thread_that_took_the_signal_names_the_place() -> None:
    found = dumps.read(DUMP.splitlines(), Path("/box"))
    assert found is not None
    assert found.place == "testing.py:12 (matched)"
    assert [frame.name for frame in found.frames][:3] == ["match", "matched", "testing"]


def test_without_a_frame_of_the_folder_there_another_thread_is_taken() -> None:
    lines = DUMP.replace("/box/testing.py", "/elsewhere/testing.py").splitlines()
    found = dumps.read(lines, Path("/box"))
    assert found is not None
    assert found.place == "_shared.py:3 (idle)"


def test_lines_that_are_no_dump_are_left_to_the_log() -> None:
    assert dumps.read(["Traceback (most recent call last):", "hello"], Path("/box")) is None
    assert not dumps.is_of_dump("hello")
    assert not dumps.is_of_dump('  File "/box/a.py", line 3, in b')
    assert all(dumps.is_of_dump(line) for line in DUMP.splitlines())


def test_the_busiest_thread_is_the_one_that_is_asked() -> None:
    assert dumps.hottest({1: 5, 2: 9}, {1: 5, 2: 30, 3: 4}, pid=1) == 2
    assert dumps.hottest({1: 5, 2: 9}, {1: 5, 2: 9}, pid=1) == 1
    assert dumps.hottest({}, {}, pid=1) == 1
