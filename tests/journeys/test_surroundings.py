"""An agent in odd surroundings, under signals, and with user code that changes its process (A-47, BH-028, BH-033)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

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


def test_signals_that_mean_nothing_end_nothing_and_ctrl_c_drains(
    box: Path, plane_url: str, plane: ControlPlaneClient
) -> None:
    """BH-028: SIGPIPE, SIGUSR1, SIGUSR2, SIGCHLD, then Ctrl-C of a terminal: the whole foreground group."""
    isolated = folders.LOOP.replace("@on_state(states.loop)", '@on_state(states.loop, isolation="process")')
    folder = folders.make(box / "signals", plane_url, loop=isolated)
    gate = str(box / "gate-signals")
    with AgentProgram(folder, plane_url) as agent:
        plane.start("signal-hand", gate=gate)
        plane.start("signal-loop", kind="loop", gate=gate)
        began(folder, "signal-hand")
        began(folder, "signal-loop")
        for number in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            agent.signal(number)
        os.killpg(agent.child.pid, signal.SIGINT)
        agent.line('"supervisor.stopping"')
        Path(gate).touch()
        assert agent.ended(within_s=30) == 0
    assert [phase for _, phase in folders.phases(folder, "signal-loop")] == ["begin", "end"]
    for token in ("signal-hand", "signal-loop"):
        assert not {"task_failed", "task_released"} & set(plane.kinds(token))


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
