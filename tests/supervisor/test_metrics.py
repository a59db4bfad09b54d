"""The metrics page as text and as a real answer (A-59)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stateous_supervisor.agent.metrics import METRICS, PREFIX, render
from stateous_supervisor.agent.metrics_page import MetricsPage
from stateous_supervisor.agent.overview import Broken, HostFacts, RunningTask, Snapshot, headline
from stateous_supervisor.agent.tally import Tally
from stateous_supervisor.cli.status import _lines

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def running(task: int = 7, **more: object) -> RunningTask:
    facts = {
        "attempt": 1,
        "state": "coding",
        "token": "T-9",
        "phase": "running",
        "age_s": 725.0,
        "lease_left_s": 9.0,
    }
    return RunningTask(task=task, heartbeats=3, host=1, **(facts | more))  # type: ignore[arg-type]


def snapshot(**more: object) -> Snapshot:
    facts: dict[str, object] = {
        "version": "1", "supervisor": "box", "instance": "i", "pid": 1, "folder": "/f", "url": "http://h",
        "uptime_s": 5.0, "phase": "serving", "is_reached": True, "away_s": None, "is_claiming": True,
        "slots": 4, "slots_taken": 1, "tasks": [running()], "beat_age_s": 3.0, "beat_failures": 0,
        "outbox_depth": 0, "outbox_is_writable": True, "broken": [],
        "hosts": [HostFacts(generation=1, pid=2, python="3", states=["coding", "testing"], age_s=1.0, running=1)],
    }  # fmt: skip
    return Snapshot(**(facts | more))  # type: ignore[arg-type]


def tally() -> Tally:
    counted = Tally()
    for duration_s in (0.05, 2.0, 1e9):
        counted.hear("task.claimed", {"state": "coding", "task": 987_654})
        ended = {"state": "coding", "task": 987_654, "outcome": "event", "duration_s": duration_s}
        counted.hear("task.finished", ended)
    counted.hear("host.ended", {"host": 1})
    return counted


def values(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_what_was_counted_stands_on_the_page_a_59() -> None:
    found = values(render(snapshot(), tally()))

    assert found[PREFIX + 'claims_total{state="coding"}'] == "3"
    assert found[PREFIX + 'attempts_total{state="coding",outcome="event"}'] == "3"
    assert found[PREFIX + "host_deaths_total"] == "1"
    assert found[PREFIX + 'running{state="coding"}'] == "1"
    assert found[PREFIX + 'running{state="testing"}'] == "0"


def test_buckets_add_up_to_the_count_a_59() -> None:
    found = values(render(snapshot(), tally()))
    bucket = PREFIX + 'attempt_duration_seconds_bucket{state="coding",le="%s"}'

    assert [found[bucket % bound] for bound in ("0.1", "1", "10", "28800", "+Inf")] == [
        "1",
        "1",
        "2",
        "2",
        "3",
    ]
    assert found[PREFIX + 'attempt_duration_seconds_count{state="coding"}'] == "3"


def test_no_id_is_on_the_page_a_59() -> None:
    assert not re.search("987654|T-9", render(snapshot(), tally()))


def test_every_line_is_of_prometheus_text_format() -> None:
    text = render(snapshot(tasks=[running(state='a"b\\c\nd')]), tally())

    sample = r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\})? [0-9.e+]+'
    assert [line for line in text.splitlines() if not re.fullmatch(rf"# (HELP|TYPE) .+|{sample}", line)] == []


def test_the_documented_table_is_the_one_that_is_served_a_59() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)

    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)), about) for name, kind, labels, about in rows
    }
    assert documented == {PREFIX + name: tuple(metric) for name, metric in METRICS.items()}


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /metrics HTTP/1.1", "200 OK"), ("GET /metrics?x=1 HTTP/1.1", "200 OK"), ("GET / HTTP/1.1", "404 Not Found"),
     ("POST /metrics HTTP/1.1", "405 Method Not Allowed"), ("nonsense", "404 Not Found")],
)  # fmt: skip
def test_only_one_page_is_served(request_line: str, status: str) -> None:
    answer = MetricsPage("127.0.0.1:1", lambda: "x 1\n").answer(f"{request_line}\r\n\r\n".encode())

    assert answer.startswith(f"HTTP/1.1 {status}\r\n".encode())


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "1/4 running, oldest coding 12 m, beat 3 s ago, 0 abandoned"),
        ({"tasks": []}, "0/4 running, 0 abandoned"),
        ({"away_s": 40.0, "outbox_depth": 2, "tasks": []},
         "0/4 running, control plane away for 40 s, 2 to deliver, 0 abandoned"),
        ({"tasks": [], "mend": "s contract /f", "outdated": ["a"]},
         "0/4 running, no claims for a until 's contract /f', 0 abandoned"),
        ({"tasks": [], "mend": "s contract /f", "is_claiming": False},
         "0/4 running, no claims until 's contract /f', 0 abandoned"),
        ({"tasks": [], "broken": [Broken(file=f"{name}.py", line=1, error="no") for name in "abcde"]},
         "0/4 running, left out: a.py, b.py, c.py and 2 more, 0 abandoned"),
        ({"tasks": [], "hosts": [], "last_death": "exit code 9"},
         "0/4 running, no routine host, the last one ended: exit code 9, 0 abandoned"),
        ({"tasks": [], "last_death": "exit code 9"}, "0/4 running, 0 abandoned"),
        ({"reload_error": "no", "phase": "stopping"},
         "reload refused: no, stopping, 1/4 running, oldest coding 12 m, beat 3 s ago, 0 abandoned"),
    ],
)  # fmt: skip
def test_the_status_line_says_what_counts_a_05_a_09_a_23_a_55(more: dict[str, object], line: str) -> None:
    assert headline(snapshot(**more)) == line


@pytest.mark.parametrize(
    ("outdated", "said"),
    [
        (["a", "b"], "the workflow changed; nothing is claimed for a, b; mend: s contract /f"),
        ([], "the workflow is another one; nothing is claimed; mend: s contract /f"),
    ],
)
def test_status_names_what_mends_a_contract_a_09(outdated: list[str], said: str) -> None:
    lines = list(_lines(snapshot(mend="s contract /f", outdated=outdated)))

    assert f"contract       {said}" in lines
    assert not [line for line in _lines(snapshot()) if line.startswith("contract ")]


def test_status_says_how_many_hosts_died_and_how_a_23() -> None:
    died = snapshot(hosts=[], host_deaths=7, last_death="exit code 9")

    assert "hosts died     7, the last one: exit code 9" in _lines(died)
    assert next(line for line in _lines(died) if line.startswith("host  ")).split()[1] == "none;"
    assert not [line for line in _lines(snapshot()) if "died" in line or "none;" in line]
