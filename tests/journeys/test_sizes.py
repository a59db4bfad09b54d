"""Outcomes that are larger than the wire takes (BH-040, A-39): refused in the agent, told once, never sent again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import FaultProxy
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders

MIB = 1_048_576
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
    """No answer is no refusal: the outcome is kept and sent again, until it gets through; others arrive meanwhile."""
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
