"""Folders of routines without a graph that wait in every way there is; `def` and `async def` do the same.

`plain` and `loop` are the same routine of both kinds. A ledger beside the folder witnesses each side effect.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from programs import ControlPlaneClient, wait_for

HEAD = '''
import asyncio
import json
import os
import signal
import time
from pathlib import Path

from stateous_supervisor import Received, Result, Signal, Sleep, TimedOut, routine

LEDGER = Path(__file__).parent.with_suffix(".ledger")


def wrote(ctx, phase, **more):
    line = {"task": ctx.task, "attempt": ctx.attempt, "phase": phase, **more}
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\\n")
    os.close(descriptor)
    return phase


def dies(ctx, given, place):
    """Die here as a power cut would have it, the first time that this task comes by."""
    if given["dies"] == place:
        try:
            os.close(os.open(LEDGER.with_suffix(f".died-{ctx.task}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@routine("child", isolation="process")
def child(ctx, given):
    wrote(ctx, "child", of=given)
    return ctx.step("work", lambda: wrote(ctx, "child work", of=given))
'''
CALLS = re.compile(
    r"ctx\.(step|sleep_for|sleep_until|wait_for_signal|wait_for_result|first|spawn|ask|checkpoint)\("
)


def make(
    folder: Path,
    body: str,
    *,
    version: int = 1,
    more: str = "",
    isolation: str = "thread",
    is_strict: bool = False,
) -> Path:
    """Write a folder whose routines `plain` and `loop` have this body, written as `def` would have it."""
    lines = body.strip().replace("\n", "\n    ")
    mark = f"version={version}, isolation={isolation!r}" + (", strict=True" if is_strict else "")
    plain = f'@routine("plain", {mark})\ndef plain(ctx, given):\n    {lines}\n'
    awaited = CALLS.sub(r"await ctx.\1(", lines)
    loop = f'@routine("loop", {mark})\nasync def loop(ctx, given):\n    {awaited}\n'
    folder.mkdir(parents=True)
    (folder / "flows.py").write_text(f"{HEAD}\n\n{more}\n\n{plain}\n\n{loop}")
    return folder


def start(plane: ControlPlaneClient, routine: str, given: Any = None, **more: Any) -> int:
    """Start a routine and return its task."""
    answer = plane.http.post("/tasks", json={"routine": routine, "input": given, **more})
    answer.raise_for_status()
    return int(answer.json()["task"])


def view(plane: ControlPlaneClient, task: int) -> Any:
    return plane.http.get(f"/tasks/{task}").json()


def until(plane: ControlPlaneClient, tasks: list[int], *, within_s: float = 40.0, **wanted: Any) -> list[Any]:
    """Wait until all these tasks are as wanted, and return them."""

    def there() -> list[Any] | None:
        views = [view(plane, task) for task in tasks]
        fits = all(each.get(key) == value for each in views for key, value in wanted.items())
        return views if fits else None

    return list(wait_for(there, within_s=within_s, what=f"tasks {tasks} with {wanted}"))


def send(plane: ControlPlaneClient, task: int, name: str, payload: Any = None) -> None:
    plane.http.post(f"/tasks/{task}/signals/{name}", json={"payload": payload}).raise_for_status()


def resume(plane: ControlPlaneClient, task: int) -> None:
    body = {"expected_generation": view(plane, task)["generation"]}
    plane.http.post(f"/tasks/{task}/resume", json=body).raise_for_status()


def answer_all(plane: ControlPlaneClient, value: Any) -> None:
    """Answer every open question."""
    for question in plane.http.get("/questions", params={"status": "pending"}).json()["entries"]:
        body = {"answer": value, "expected_generation": question["generation"]}
        plane.http.post(f"/questions/{question['question']}/answer", json=body)


def ledger(folder: Path) -> list[dict[str, Any]]:
    """Everything that was witnessed, in order."""
    import json

    path = folder.with_suffix(".ledger")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def count(folder: Path, task: int, phase: str) -> int:
    return sum(line["task"] == task and line["phase"] == phase for line in ledger(folder))


def another_box(folder: Path) -> Path:
    """The same routines on a box that has nothing else; the ledger is for the test's eyes."""
    moved = folder.parent / f"{folder.name}-moved"
    moved.mkdir()
    (moved / "flows.py").write_text((folder / "flows.py").read_text())
    os.symlink(folder.with_suffix(".ledger"), moved.with_suffix(".ledger"))  # noqa: PTH211  its target comes later
    return moved
