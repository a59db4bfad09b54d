"""Folders of routines that ask, and that do things once: `hand` is `def`, `loop` is `async def`, and both do the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from programs import BIN, ControlPlaneClient, Program, wait_for

from journeys import folders

HEAD = """
import asyncio
import os
import time
from pathlib import Path

import tenacity
from contract import Made, events, states
from stateous_supervisor import Parked, on_state
from _shared import is_open, wrote
"""
PLAIN = """
@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    {body}
    return events.made(Made(size=ctx["size"]))
"""
AWAITED = """
@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin")
    {body}
    return events.made(Made(size=ctx["size"]))
"""
ASKING = """
size = ctx.step("build", lambda: wrote(ctx, "build") or [ctx["size"]])
mode = ctx["gate"]
answer = None
try:
    if mode == "loop":
        while (answer := ctx.ask("number", ttl="2h")) < 0:
            pass
    elif mode == "retried":
        for attempt in tenacity.Retrying(stop=tenacity.stop_after_attempt(3)):
            with attempt:
                wrote(ctx, "try")
                answer = ctx.ask("go", ttl="2h")
    elif mode == "swallowed":
        try:
            answer = ctx.ask("go", ttl="2h")
        except BaseException as error:
            wrote(ctx, type(error).__name__)
            try:
                ctx.step("after", lambda: wrote(ctx, "after"))
            except BaseException as refused:
                wrote(ctx, "again " + type(refused).__name__)
    else:
        answer = ctx.ask("approve", {"size": size}, choices=["yes", "no"], ttl="2h", remind="30m")
except Exception:
    wrote(ctx, "caught")
finally:
    wrote(ctx, "unwound")
wrote(ctx, "went on", answer=answer, size=size)
"""
# Calls that are awaited in `async def` and plain in `def`.
SUSPENDING = ("ctx.ask(", "ctx.step(", "ctx.checkpoint(", "waiting(ctx)")


def texts(body: str, helpers: str = "") -> dict[str, str]:
    """Return both routines' modules for one body, written as `def` would have it."""
    awaited = body
    for call in SUSPENDING:
        awaited = awaited.replace(call, f"await {call}")

    def module(frame: str, lines: str) -> str:
        return HEAD + helpers + frame.replace("{body}", lines.strip().replace("\n", "\n    "))

    return {"hand": module(PLAIN, body), "loop": module(AWAITED, awaited)}


def make(box: Path, url: str, body: str, helpers: str = "") -> Path:
    return folders.make(box, url, **texts(body, helpers))


def isolate(folder: Path) -> None:
    """Have both routines run in processes of their own."""
    settings = folder / "stateous.yaml"
    isolated = "".join(f"  {state}:\n    isolation: process\n" for state in ("hand", "loop"))
    settings.write_text(f"{settings.read_text()}\nroutines:\n{isolated}")


def another_box(folder: Path) -> Path:
    """The same routines on another box: nothing else is taken along but the ledger, for the test's eyes."""
    moved = folder.parent / f"{folder.name}-moved"
    shutil.copytree(folder, moved)
    ledger = folder.with_suffix(".ledger")
    moved.with_suffix(".ledger").symlink_to(ledger)
    return moved


def open_question(plane: ControlPlaneClient, token: str, *, within_s: float = 20.0) -> Any:
    """Wait for an open question of a token, and return it."""

    def there() -> Any:
        found = plane.http.get("/questions", params={"token": token, "status": "pending"}).json()["entries"]
        return found[0] if found else None

    return wait_for(there, within_s=within_s, what=f"open question of {token}")


def questions(plane: ControlPlaneClient, token: str) -> list[Any]:
    """Every question of a token, oldest first."""
    entries: list[Any] = plane.http.get("/questions", params={"token": token}).json()["entries"]
    return entries[::-1]


def task_of(plane: ControlPlaneClient, token: str) -> Any:
    """The first task of a token, as people see it."""
    return plane.http.get("/tasks", params={"token": token}).json()["entries"][-1]


def task_until(plane: ControlPlaneClient, token: str, *, within_s: float = 20.0, **wanted: Any) -> Any:
    """Wait until the first task of a token is as wanted."""

    def there() -> Any:
        task = task_of(plane, token)
        return task if all(task.get(key) == value for key, value in wanted.items()) else None

    return wait_for(there, within_s=within_s, what=f"task of {token} with {wanted}")


def command(url: str, *words: str | int) -> None:
    """Run a command for people."""
    with Program([BIN / "stateous-control", *map(str, words), "--url", url]) as asked:
        assert asked.ended(within_s=30) == 0, asked.told


def answer(plane: ControlPlaneClient, question: Any, value: Any) -> None:
    """Answer a question as a person's program would."""
    body = {"answer": value, "expected_generation": question["generation"]}
    plane.http.post(f"/questions/{question['question']}/answer", json=body).raise_for_status()


def phases(folder: Path, token: str) -> list[tuple[int, str]]:
    """What the asking routine wrote down, without what the state after it did."""
    found = folders.phases(folder, token)
    return found[:-1] if found and found[-1] == (1, "begin") and len(found) > 1 else found


def answer_question(plane: ControlPlaneClient, token: str, value: object) -> None:
    answer(plane, open_question(plane, token), value)
