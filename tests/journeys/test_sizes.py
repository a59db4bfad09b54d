"""Outcomes that are larger than the wire takes (BH-040, A-39): refused in the agent, told once, never sent again and again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from control.databases import fresh
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, wait_for
from stateous_contract.limits import CONTEXT_BYTES_MAX, GRANT_BYTES_MAX

from journeys import folders
from journeys.conftest import TIMES

MIB = 1_048_576
RSS_BYTES_MAX = 10**9
LARGE = """
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    if ctx["kind"] == "message":
        raise ValueError("x" * ctx["size"])
    ctx["blob"] = "x" * ctx["size"]
    return events.made(Made(size=ctx["size"]))
"""


GROWTH = """
stateous: 1
workflow: growth
context: Growth
states:
  grow: {retries: 1, emits: [grown]}
  rescue: {emits: [passed]}
events: {grown: {}, passed: {}}
transitions:
  - {from: __start__, to: grow}
  - {from: grow, on: grown, to: grow}
  - {from: grow, on: error, to: rescue}
  - {from: rescue, on: passed, to: __end__}
schemas:
  Growth: {type: object, properties: {kind: {type: string, default: ours}}}
"""
GROW = """
from contract import events, states
from stateous_supervisor import on_state


@on_state(states.grow)
def grow(ctx):
    if ctx["kind"] == "small":
        raise ValueError("small")
    ctx[f"blob-{ctx.visit}"] = "x" * 1_000_000
    return events.grown()


@on_state(states.rescue)
def rescue(ctx):
    return events.passed()
"""
IDLE = '"""No routine is here."""'


@pytest.fixture(scope="module")
def proxy(plane_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(plane_url) as between:
        yield between


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, proxy: FaultProxy) -> Iterator[Path]:
    made = folders.make(tmp_path_factory.mktemp("sizes") / "box", proxy.url, hand=LARGE)
    with AgentProgram(made, proxy.url):
        yield made


def failures(plane: ControlPlaneClient, token: str) -> list[str]:
    return [entry["data"]["error"] for entry in plane.history(token) if entry["kind"] == "task_failed"]


def test_nine_tenths_of_the_limit_pass(folder: Path, plane: ControlPlaneClient) -> None:
    plane.start("nearly", size=int(0.9 * MIB))

    plane.until("nearly", status="completed")

    assert len(plane.token("nearly")["context"]["blob"]) == int(0.9 * MIB)


@pytest.mark.parametrize("size", [int(1.1 * MIB), 5 * MIB, 20 * MIB])
def test_what_is_too_large_fails_with_size_and_limit(
    folder: Path, plane: ControlPlaneClient, proxy: FaultProxy, size: int
) -> None:
    """One attempt for each retry, and nothing large on the wire."""
    token = f"large-{size}"
    heard = len(proxy.heard)
    plane.start(token, size=size)

    plane.until(token, state="rescue", within_s=30)

    told = failures(plane, token)
    assert len(told) == 3
    assert all("1,048,576" in text or "1048576" in text or "1 MiB" in text for text in told), told
    assert max(len(body) for _, _, _, body in proxy.heard[heard:]) < MIB
    assert len(folders.phases(folder, token)) == 3


def test_a_message_of_50_mb_is_cut_with_a_mark(folder: Path, plane: ControlPlaneClient) -> None:
    plane.start("message", size=50 * MIB, kind="message")

    plane.until("message", state="rescue", within_s=30)

    told = failures(plane, "message")
    assert all(text.startswith("ValueError: xxx") and len(text.encode()) <= 8_192 for text in told)
    assert not told[0].endswith("xxx")


def test_a_proxy_that_takes_less_than_the_control_plane_wedges_nothing(
    folder: Path, plane: ControlPlaneClient, proxy: FaultProxy
) -> None:
    """413 with a page: the attempt fails with what was said, and other tasks go on."""
    proxy.body_bytes_max = 100_000
    try:
        plane.start("narrow", size=300_000)
        plane.until("narrow", state="rescue", within_s=30)
        plane.start("small", size=10)
        plane.until("small", status="completed")
    finally:
        proxy.body_bytes_max = None

    assert len(failures(plane, "narrow")) == 3


def test_a_proxy_that_cuts_what_is_large_holds_up_nothing_else(
    folder: Path, plane: ControlPlaneClient, proxy: FaultProxy
) -> None:
    """One that goes away within half a minute is no refusal: the outcome is kept and sent again; others arrive meanwhile."""
    limit, heard = 100_000, len(proxy.heard)

    def cut() -> int:
        return sum(len(body) > limit for _, _, _, body in proxy.heard[heard:])

    proxy.body_bytes_max, proxy.cuts = limit, True
    try:
        plane.start("cut", size=300_000)
        wait_for(lambda: cut() >= 2, within_s=30, what="second try")
        plane.start("passes", size=10)
        plane.until("passes", status="completed", within_s=30)
        assert plane.token("cut")["state"] == "hand"
    finally:
        proxy.body_bytes_max, proxy.cuts = None, False
    plane.until("cut", status="completed", within_s=40)

    assert failures(plane, "cut") == []
    assert plane.kinds("cut").count("task_claimed") == 2  # one a state: no attempt was spent


def test_a_proxy_that_takes_1_mb_passes_many_outcomes_of_nine_tenths_one_by_one(
    folder: Path, plane: ControlPlaneClient, proxy: FaultProxy
) -> None:
    """Together they are too large for it (413 with a page), each alone is not."""
    names = [f"many-{number}" for number in range(4)]
    proxy.body_bytes_max = 1_000_000
    try:
        for name in names:
            plane.start(name, size=900_000)
        for name in names:
            plane.until(name, status="completed")
    finally:
        proxy.body_bytes_max = None

    assert [failures(plane, name) for name in names] == [[], [], [], []]


@pytest.mark.prove
@pytest.mark.timeout(400)
def test_what_a_proxy_cuts_each_time_fails_with_a_text_that_says_so(
    folder: Path, plane: ControlPlaneClient, proxy: FaultProxy
) -> None:
    """ADR 43: small requests are answered meanwhile, so it is the size; one attempt for each retry."""
    proxy.body_bytes_max, proxy.cuts = 100_000, True
    try:
        plane.start("cut-for-ever", size=300_000)
        plane.until("cut-for-ever", state="rescue", within_s=300)
    finally:
        proxy.body_bytes_max, proxy.cuts = None, False

    told = failures(plane, "cut-for-ever")
    assert len(told) == 3
    assert all("times in a row under its 300," in text for text in told), told


@pytest.mark.prove
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["process", "inline"])
def test_results_of_every_size_are_refused_where_they_are_made(
    box: Path, plane_url: str, plane: ControlPlaneClient, mode: str
) -> None:
    """In a process of their own, and inside the agent's; an ordinary task passes afterwards."""
    isolated = LARGE.replace("(states.hand)", '(states.hand, isolation="process")')
    made = folders.make(box, plane_url, hand=isolated if mode == "process" else LARGE)
    with AgentProgram(made, plane_url, *(["--inline"] if mode == "inline" else [])):
        sizes = [int(1.1 * MIB), 5 * MIB, 20 * MIB, 120 * MIB]
        for size in sizes:
            plane.start(f"{mode}-{size}", size=size)
        for size in sizes:
            plane.until(f"{mode}-{size}", state="rescue", within_s=60)
            told = failures(plane, f"{mode}-{size}")
            assert len(told) == 3
            assert all("at most 1,048,576 are allowed" in text for text in told), told
        plane.start(f"{mode}-nearly", size=int(0.9 * MIB))
        plane.until(f"{mode}-nearly", status="completed")


class Watched:
    """The most memory that the program listening at `url` had at any time inside the block."""

    def __init__(self, url: str) -> None:
        port = urlsplit(url).port
        listening = (
            c
            for c in psutil.net_connections("tcp")
            if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port
        )
        self._process = psutil.Process(next(listening).pid)
        self._is_over = threading.Event()
        self.most_bytes = 0

    def _watch(self) -> None:
        while not self._is_over.wait(0.01):
            self.most_bytes = max(self.most_bytes, self._process.memory_info().rss)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_ten_results_of_20_mb_at_once_cost_the_control_plane_little(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """From the agent they never leave the box; from somebody who sends them all the same they are refused unread."""
    made = folders.make(box, plane_url, hand=LARGE)
    body = b'{"kind":"event","event":"made","attempt":1,"context":{"x":"' + b"x" * (20 * MIB) + b'"}}'

    def send(number: int) -> int:
        path = "/tasks/messages" if number % 2 else "/tasks/1/report"
        return httpx.post(f"{plane_url}{path}", content=body, timeout=60, trust_env=False).status_code

    with Watched(plane_url) as watched, AgentProgram(made, plane_url, "--tasks", "10"):
        names = [f"ten-{number}" for number in range(10)]
        for name in names:
            plane.start(name, size=20 * MIB)
        with ThreadPoolExecutor(10) as pool:
            assert set(pool.map(send, range(10))) == {413}
        for name in names:
            plane.until(name, state="rescue", within_s=90)

    print(f"at most {watched.most_bytes / 1e6:.0f} MB in the control plane")
    assert all(len(failures(plane, name)) == 3 for name in names)
    assert 0 < watched.most_bytes < RSS_BYTES_MAX


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_a_context_that_grows_state_by_state_ends_at_its_limit_and_wedges_no_claim(
    box: Path, postgres: str, migrated_template: str
) -> None:
    """By our agent up to the limit of a context; by somebody else's beyond what an agent takes, and can read."""
    workflow = box.parent / "growth.yaml"
    workflow.write_text(GROWTH)
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(workflow, *TIMES, "--database", database) as program,
        ControlPlaneClient(program.url) as plane,
    ):
        for token, visits in (("theirs-9", 9), ("theirs-18", 18)):
            plane.start(token, kind="theirs")
            for visit in range(visits):
                claim = {"supervisor": "other", "states": ["grow"], "request": f"{token}-{visit}"}
                task = plane.http.post("/tasks/claim", json=claim).json()
                outcome = {"kind": "event", "event": "grown", "context": {f"blob-{visit}": "x" * 1_000_000}}
                named = {"supervisor": "other", "attempt": task["attempt"]}
                plane.http.post(f"/tasks/{task['task']}/report", json=outcome | named).raise_for_status()
        made = folders.make(box, program.url, workflow, hand=GROW, loop=IDLE, check=IDLE, _shared=IDLE)
        with AgentProgram(made, program.url, "--tasks", "1") as agent:
            plane.start("ours")
            plane.start("small", kind="small")
            plane.until("ours", status="completed", within_s=90)
            plane.until("small", status="completed", within_s=60)
            for token in ("theirs-9", "theirs-18"):
                plane.until(token, status="failed", within_s=60)
            assert "loop.failed" not in agent.told

        assert failures(plane, "ours")[-1].endswith(f"at most {CONTEXT_BYTES_MAX:,} are allowed")
        events = [e["data"]["event"] for e in plane.history("ours") if e["kind"] == "event_accepted"]
        assert events.count("grown") == 7
        for token in ("theirs-9", "theirs-18"):
            assert all(
                text.endswith(f"at most {GRANT_BYTES_MAX:,} are taken") for text in failures(plane, token)
            )
