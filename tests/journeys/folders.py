"""The supervisor's folder of the journeys: routines that do what their token's context says, and write down that they did.

Each phase of a routine is one JSON line, appended with a single write to a file beside the folder: the only witness
that counts for what ran, how often, and whether it was cancelled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stateous_supervisor.scaffold import folder as folders
from stateous_supervisor.scaffold.source import from_file

WORKFLOW = Path(__file__).with_name("workflow.yaml")
SHARED = '''
"""What every routine here does: be told by the context, and leave a line for each phase."""

import json
import os
import time
from pathlib import Path

LEDGER = Path(__file__).parent.with_suffix(".ledger")


def wrote(ctx, phase, **more):
    line = {"task": ctx.task, "attempt": ctx.attempt, "token": ctx.token, "pid": os.getpid(), "phase": phase, **more}
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\\n")
    os.close(descriptor)


def is_open(ctx):
    return not ctx["gate"] or Path(ctx["gate"]).exists()
'''
HAND = """
import time
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.hand)
def hand(ctx):
    wrote(ctx, "begin")
    ctx.memory["tries"] = ctx.memory.get("tries", 0) + 1
    if ctx["fails"] >= ctx.attempt:
        raise RuntimeError(f"told to fail, attempt {ctx.attempt}")
    while not is_open(ctx):
        time.sleep(0.02)
    ctx.note(f"by hand, attempt {ctx.attempt}")
    ctx["tries"] = ctx.memory["tries"]
    wrote(ctx, "end")
    return events.made(Made(size=ctx["size"]))
"""
LOOP = """
import asyncio
from contract import Made, events, states
from stateous_supervisor import on_state
from _shared import is_open, wrote


@on_state(states.loop)
async def loop(ctx):
    wrote(ctx, "begin")
    try:
        while not is_open(ctx):
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        wrote(ctx, "cancelled")
        raise
    wrote(ctx, "end")
    return events.made(Made(size=ctx["size"]))
"""
CHECK = """
from contract import events, states
from stateous_supervisor import on_state
from _shared import wrote


@on_state(states.check)
def check(ctx):
    wrote(ctx, "begin", payload=ctx.entered_by.payload)
    return events.passed()


@on_state(states.asking)
def asking(ctx):
    wrote(ctx, "begin")
    return None
"""


def make(folder: Path, url: str, source: Path = WORKFLOW, /, **files: str) -> Path:
    """Write a folder whose routines serve a workflow; `files` replace or add modules by name. States without a
    routine get none.
    """
    workflow = from_file(source)
    texts = {"_shared": SHARED, "hand": HAND, "loop": LOOP, "check": CHECK, **files}
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text.lstrip("\n"), "utf-8")
    written = folders.init(folder, workflow.document, workflow.checksum, url)
    for stub in set(written.made) - {"contract.py", "stateous.yaml"}:
        (folder / stub).unlink()
    return folder


def ledger(folder: Path) -> list[dict[str, Any]]:
    """Everything the routines of `folder` wrote down, in order."""
    path = folder.with_suffix(".ledger")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def phases(folder: Path, token: str) -> list[tuple[int, str]]:
    """What happened for one token: attempt and phase."""
    return [(line["attempt"], line["phase"]) for line in ledger(folder) if line["token"] == token]
