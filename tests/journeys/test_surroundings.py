"""An agent in odd surroundings, under signals, and with user code that changes its process (A-47, BH-028, BH-033)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from programs import AgentProgram, ControlPlaneClient, Program, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

PRINTS = folders.HAND.replace("    ctx.note(", "    print('printed', ctx.token, '🚀 שלום')\n    ctx.note(")
VANDAL = """
import asyncio, locale, logging, logging.config, os, signal, socket, sys
from contract import states


def havoc():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(1)
    logging.disable()
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
    os.chdir("/")
    os.environ.clear()
    sys.stdout.close()
    sys.stderr.close()
    socket.setdefaulttimeout(0.001)
    asyncio.set_event_loop_policy(None)
    locale.setlocale(locale.LC_ALL, "C")


havoc()
"""
AGAIN = folders.LOOP.replace(
    '    wrote(ctx, "begin")\n', '    import avandal\n\n    avandal.havoc()\n    wrote(ctx, "begin")\n'
)
KINDS = ("loop", "hand", "asking")
SWALLOWS = """
import asyncio
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin")
    while not is_open(ctx):
        try:
            await asyncio.sleep(0.02)
        except BaseException:
            pass
    wrote(ctx, "end")
    return events.made(Made(size=0))
"""
BLOCKS = """
import time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


def wait(ctx):
    wrote(ctx, "begin")
    while not is_open(ctx):
        time.sleep(0.02)
    wrote(ctx, "end")


@on_state(states.hand)
def hand(ctx):
    wait(ctx)
    return events.made(Made(size=0))
"""
APART = """
import signal
from contract import events, states
from hand import wait
from stateous_supervisor import on_state


@on_state(states.asking, isolation="process")
def asking(ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait(ctx)
    return events.answered()
"""
HARSH = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "TZ": "Nowhere/Garbage"}


def in_harsh_surroundings(agent: Program, gone: Path) -> Program:
    """`env -i`, a working directory that is deleted, and no stdout."""
    gone.mkdir()
    script = 'cd "$0" && /bin/rmdir "$0" && exec "$@" 1>&-'
    harsh = Program(["/bin/sh", "-c", script, gone, *agent.command])
    harsh.env = {**HARSH, **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}}
    return harsh


def began(folder: Path, token: str) -> None:
    wait_for(lambda: (1, "begin") in folders.phases(folder, token), within_s=30, what=f"attempt of {token}")


def test_an_agent_without_environment_directory_locale_and_stdout_works_and_logs_what_people_wrote(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-033: and a success is logged under a C locale, whatever is in it."""
    folder = folders.make(box / "harsh", plane_url, hand=PRINTS)
    name, token = "bücher-" + "é" * 57, "harsh-1"
    agent = AgentProgram(folder, plane_url, name=name)
    with in_harsh_surroundings(agent, box / "gone") as harsh:
        plane.start(token, gate="")
        plane.until(token, status="completed", within_s=40)
        harsh.signal(signal.SIGTERM)
        assert harsh.ended() == 0
    lines = [json.loads(line) for line in harsh.lines]
    assert {line["text"] for line in lines if line["event"] == "routine.logged"} == {
        f"printed {token} 🚀 שלום"
    }
    finished = [line for line in lines if line["event"] == "task.finished" and line["state"] == "hand"]
    assert [(line["token"], line["supervisor"]) for line in finished] == [(token, name)]
    claimed = [entry["data"] for entry in plane.history(token) if entry["kind"] == "task_claimed"]
    assert {entry["supervisor"] for entry in claimed} == {name}


@pytest.mark.parametrize("length", [pytest.param(128, marks=pytest.mark.prove), 129, 253])
def test_a_long_name_is_kept_whole_or_refused(length: int, box: Path, plane_url: str) -> None:
    """BH-033: never cut in silence."""
    folder = folders.make(box / f"name-{length}", plane_url)
    with AgentProgram(folder, plane_url, name="n" * length) as agent:
        if length > 128:
            assert agent.ended() == 64
            assert "1 to 128 printable" in agent.told
        else:
            assert "n" * length in agent.line('"supervisor.started"')


def three_kinds(place: Path, plane_url: str) -> Path:
    """A folder with a routine on the loop, one in a thread, and one in a process of its own; none can be stopped."""
    return folders.make(
        place,
        plane_url,
        loop=SWALLOWS,
        hand=BLOCKS,
        asking=APART,
        check=folders.CHECK.partition("@on_state(states.asking)")[0],
    )


def begin(plane: ControlPlaneClient, folder: Path, prefix: str, gate: str) -> list[str]:
    """Start one token for each kind and wait until all three routines run; return the tokens."""
    tokens = [f"{prefix}-{kind}" for kind in KINDS]
    for token, kind in zip(tokens, KINDS, strict=True):
        plane.start(token, kind=kind, gate=gate)
    for token in tokens:
        began(folder, token)
    return tokens


def test_signals_that_mean_nothing_end_nothing_and_ctrl_c_drains(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-028: SIGPIPE, SIGUSR1, SIGUSR2, SIGCHLD, then Ctrl-C of a terminal: the whole foreground group.

    All three kinds of routines run, and none of them is killed, cancelled or given back.
    """
    folder = three_kinds(box / "signals", plane_url)
    gate = str(box / "gate-signals")
    with AgentProgram(folder, plane_url, "--tasks", "3") as agent:
        tokens = begin(plane, folder, "signal", gate)
        for number in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            agent.signal(number)
        os.killpg(agent.child.pid, signal.SIGINT)
        agent.line('"supervisor.stopping"')
        Path(gate).touch()
        assert agent.ended(within_s=30) == 0
    for token in tokens:
        assert [phase for _, phase in folders.phases(folder, token)] == ["begin", "end"]
        assert not {"task_failed", "task_released"} & set(plane.kinds(token))


def test_a_second_ctrl_c_ends_three_kinds_of_routines_that_cannot_be_stopped(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-028 (a), (b): the first one leaves all three running, the second ends them within seconds, with exit code 1.

    Nothing of them is left, and what ran is given back rather than failed.
    """
    folder = three_kinds(box / "twice", plane_url)
    with AgentProgram(folder, plane_url, "--tasks", "3") as agent:
        tokens = begin(plane, folder, "twice", str(box / "gate-never"))
        os.killpg(agent.child.pid, signal.SIGINT)
        agent.line('"supervisor.stopping"')
        pids = {line["pid"] for line in folders.ledger(folder)}
        assert len(pids) == 2
        assert all(psutil.pid_exists(pid) for pid in pids)
        os.killpg(agent.child.pid, signal.SIGINT)
        assert agent.ended(within_s=10) == 1
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids), within_s=15, what="end of all three")
    for token in tokens:
        assert [phase for _, phase in folders.phases(folder, token)] == ["begin"]
        assert "task_failed" not in plane.kinds(token)


def test_what_user_code_does_to_its_process_does_not_reach_the_agent(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """A-47, BH-028: at import and in a routine; heartbeats flow, the log goes on, SIGTERM drains, nothing is lost."""
    folder = folders.make(box / "vandal", plane_url, avandal=VANDAL, loop=AGAIN)
    gate = box / "gate-vandal"
    with AgentProgram(folder, plane_url) as agent:
        plane.start("vandal", kind="loop", gate=str(gate))
        began(folder, "vandal")
        agent.signal(signal.SIGTERM)
        agent.line('"supervisor.stopping"')
        gate.touch()
        assert agent.ended(within_s=30) == 0
        finished = [json.loads(line) for line in agent.lines if '"task.finished"' in line]
    assert [(line["outcome"], line["ending"]) for line in finished] == [("event", "delivered")]
    assert [phase for _, phase in folders.phases(folder, "vandal")] == ["begin", "end"]
