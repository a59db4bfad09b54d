"""Every list of the command line is whole, or says in words how much it leaves out (BH-056)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from control.cli.conftest import Ask, Live, lines
from webs import serving_with

HOLDER = {"supervisor": "sup", "instance": "i1"}
MANY = 1_200
DECIDED: dict[str, object] = {"run": "r", "node": None, "visited": [], "bindings": {}}


@pytest.fixture(scope="module")
def crowded(live: Live) -> Live:
    """A control plane with 1,200 tokens, 60 questions, 60 supervisors, and a task that has more lines than a page."""
    for first in range(0, MANY, 600):
        starts = [{"token": f"L-{n}", "context": {"path": "plain"}} for n in range(first, first + 600)]
        assert live.http.post("/starts", json={"starts": starts}).status_code == 200
    claim = {**HOLDER, "states": ["plain"], "max": 60, "request": "r"}
    tasks = [grant["task"] for grant in live.http.post("/tasks/claim", json=claim).json()["tasks"]]
    for task in tasks:
        asked = {
            "attempt": 1,
            "key": "go",
            "occurrence": 1,
            "data": 1,
            "ttl_s": 600,
            "locked_decisions": DECIDED,
        }
        assert live.http.post(f"/tasks/{task}/questions", json=HOLDER | asked).status_code == 201
    for number in range(60):
        body = {"supervisor": f"s{number}", "instance": "i", "states": ["nothing"], "request": f"s-{number}"}
        live.http.post("/tasks/claim", json=body, headers={"User-Agent": f"stateous-supervisor/1.{number}"})
    return live


def notes(live: Live, count: int) -> tuple[str, int]:
    """Return a token with so many notes more in its history, and its task."""
    name = live.start("draft")
    task = live.claim_of(name, "draft")
    for number in range(count):
        live.http.post(f"/tasks/{task}/note", json={"text": f"note {number}"})
    return name, task


@pytest.mark.parametrize(
    ("command", "total"),
    [(("token", "list"), MANY), (("task", "list"), MANY), (("question", "list"), 60),
     (("token", "list", "--status", "active"), MANY), (("task", "list", "--is", "parked"), 60)],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)  # fmt: skip
def test_a_list_shows_fifty_and_says_of_how_many(
    crowded: Live, ask: Ask, command: tuple[str, ...], total: int
) -> None:
    code, out, err = ask(*command)
    assert (code, len(lines(out))) == (0, 51)
    found = re.match(r"showing 50 of ([0-9,]+)\nthe next ones: --cursor \S+\n", err)
    assert found is not None, err
    assert int(found[1].replace(",", "")) >= total
    assert ("," in found[1]) is (total >= 1_000)


@pytest.mark.parametrize("command", ["token", "task", "question"])
def test_the_cursors_of_a_list_lead_through_all_of_it(crowded: Live, ask: Ask, command: str) -> None:
    seen: list[str] = []
    more: list[str] = []
    while True:
        code, out, err = ask(command, "list", "--limit", "500", *more)
        assert code == 0
        seen += [line.split()[0] for line in lines(out)[1:]]
        total = int(re.findall(r" of ([0-9,]+)", err)[0].replace(",", "")) if err else len(seen)
        if "--cursor" not in err:
            break
        more = ["--cursor", err.split("--cursor ")[1].strip()]
    assert len(seen) == len(set(seen)) == total


@pytest.mark.parametrize("command", ["token", "task", "question"])
@pytest.mark.parametrize(
    "wrong", [("--limit", "0"), ("--limit", "-1"), ("--limit", "1000000000"), ("--cursor", "nonsense")]
)
def test_a_page_that_cannot_be_is_refused(
    crowded: Live, ask: Ask, command: str, wrong: tuple[str, str]
) -> None:
    code, out, err = ask(command, "list", *wrong)
    assert (code, out) == (76, "")
    assert "refused (invalid_argument): '" in err


def test_a_log_says_how_much_it_leaves_out_and_a_history_is_whole(crowded: Live, ask: Ask) -> None:
    name, task = notes(crowded, 55)
    _, out, err = ask("token", "history", name)
    assert (len(lines(out)), err) == (60, "")
    assert lines(out)[-1].endswith("note: note 54")
    code, out, err = ask("task", "log", str(task))
    assert (code, len(lines(out)), lines(err)[0]) == (0, 50, "showing 50 of 57")
    cursor = err.split("--cursor ")[1].strip()
    assert len(lines(ask("task", "log", str(task), "--cursor", cursor)[1])) == 7


def test_supervisors_are_all_shown(crowded: Live, ask: Ask) -> None:
    _, out, _ = ask("supervisor", "list")
    assert {f"s{number}" for number in range(60)} <= {line.split()[0] for line in lines(out) if line}


class Baseline(BaseHTTPRequestHandler):
    """A control plane that has lists without counts."""

    def do_GET(self) -> None:
        token = {
            "token": "T",
            "state": "a",
            "status": "active",
            "visit": 1,
            "entered_at": "2026-01-01T00:00:00Z",
        }
        body = json.dumps([token] * (50 if "limit=50" in self.path else 3)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def baseline() -> Iterator[str]:
    with serving_with(Baseline) as url:
        yield url


def test_a_full_page_without_counts_says_that_there_may_be_more(baseline: str, ask: Ask) -> None:
    _, out, err = ask("token", "list", "--url", baseline)
    assert (len(lines(out)), err) == (
        51,
        "showing 50; this control plane does not say whether there are more\n",
    )
    _, out, err = ask("token", "list", "--limit", "40", "--url", baseline)
    assert (len(lines(out)), err) == (4, "")
