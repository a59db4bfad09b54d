"""What a service manager puts an agent through: a start before there are names, a stop under work (BH-058).

`KillMode=mixed` signals the agent alone, so that the programs of routines go on. The unit's own text is judged in
`tests/supervisor/systemd`; the 150 s of the failure case are a gate here, which opens once the stop has begun.
"""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from programs import AgentProgram, ControlPlaneClient, wait_for

from journeys import folders

pytestmark = pytest.mark.slow

NAMES = """
import pathlib, socket
ask = socket.getaddrinfo
def answer(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    if name != "localhost":
        return ask(host, *rest, **more)
    if not pathlib.Path(FILE).exists():
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return ask("127.0.0.1", *rest, **more)
socket.getaddrinfo = answer
"""
HEAD = """
import asyncio, pathlib, subprocess
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import wrote

UNTIL_OPEN = ["sh", "-c", f"until [ -e {pathlib.Path(__file__).parent}/open ]; do sleep 0.05; done"]
"""
KINDS = {
    "hand": """
@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    subprocess.run(UNTIL_OPEN, check=True)
    wrote(ctx, "end")
    return events.made(Made(size=1))
""",
    "loop": """
@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin")
    program = await asyncio.create_subprocess_exec(*UNTIL_OPEN)
    assert await program.wait() == 0
    wrote(ctx, "end")
    return events.made(Made(size=1))
""",
    "asking": """
@on_state(states.asking, isolation="process")
def asking(ctx):
    wrote(ctx, "begin")
    subprocess.run(UNTIL_OPEN, check=True)
    wrote(ctx, "end")
    return events.answered()
""",
}


def test_a_start_before_there_are_names_waits_and_goes_on_by_itself_bh_058(
    plane_url: str, plane: ControlPlaneClient, box: Path, tmp_path: Path
) -> None:
    (tmp_path / "names").mkdir()
    table = tmp_path / "there-are-names"
    (tmp_path / "names" / "sitecustomize.py").write_text(NAMES.replace("FILE", repr(str(table))))
    url = f"http://localhost:{urlsplit(plane_url).port}"
    plane.start("early")

    with AgentProgram(
        folders.make(box, url), url, env={"PYTHONPATH": str(tmp_path / "names"), "NO_PROXY": "*"}
    ) as agent:
        agent.line("supervisor.started")
        told = agent.line("control_plane.unreachable")
        assert "Temporary failure in name resolution" in told
        assert "task_claimed" not in plane.kinds("early")
        table.touch()
        plane.until("early", status="completed")

        assert agent.child.poll() is None


def test_a_stop_lets_the_programs_of_three_kinds_of_routines_end_bh_058(
    plane_url: str, plane: ControlPlaneClient, box: Path
) -> None:
    hand, loop, asking = (HEAD + text for text in KINDS.values())
    made = folders.make(box, plane_url, hand=hand, loop=loop, asking=asking, check="# nothing is checked\n")
    for kind in KINDS:
        plane.start(kind, kind=kind)

    with AgentProgram(made, plane_url) as agent:
        wait_for(
            lambda: all(folders.phases(made, kind) for kind in KINDS), within_s=40, what="three routines"
        )
        agent.signal(signal.SIGTERM)
        agent.line("supervisor.stopping")
        (made / "open").touch()
        assert agent.ended(within_s=40) == 0

    for kind in KINDS:
        assert folders.phases(made, kind) == [(1, "begin"), (1, "end")]
        assert plane.kinds(kind).count("event_accepted") == 2  # its start and its routine
