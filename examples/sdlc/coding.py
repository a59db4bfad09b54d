"""Writes the code of a ticket: a stand-in for a coding agent, which learns from the tests that failed."""

import os
import shutil
import tempfile
from pathlib import Path

from contract import Change, TicketContext, events, states
from stateous_supervisor import on_state

CHECKOUT = Path(__file__).with_name("checkout")

FIRST_DRAFT = """\
def total(prices: list[int], discount: int = 0) -> int:
    return sum(prices) - discount
"""
SECOND_DRAFT = """\
def total(prices: list[int], discount: int = 0) -> int:
    return max(0, sum(prices) - discount)
"""


@on_state(states.coding)
def coding(ctx: TicketContext) -> events.coded:
    if ctx.visit == 1 and ctx.attempt <= ctx["crashes"]:
        raise RuntimeError(f"the code generator crashed (attempt {ctx.attempt})")

    workspace = workspace_of(ctx.token)
    findings = failures_before(ctx)
    ctx.note(f"fixing {', '.join(findings)}" if findings else f"writing a first draft: {ctx['title']}")
    (workspace / "prices.py").write_text(SECOND_DRAFT if findings else FIRST_DRAFT, "utf-8")

    ctx["workspace"] = str(workspace)
    return events.coded(Change(file="prices.py", summary="second draft" if findings else "first draft"))


def failures_before(ctx: TicketContext) -> list[str]:
    """The tests that sent the ticket back here, if that is why it is here."""
    came_by = ctx.entered_by
    return (came_by.payload or {}).get("failures", []) if came_by and came_by.name == "failed" else []


def workspace_of(token: str) -> Path:
    """A copy of the checkout for this ticket alone, the same on every attempt. Nothing is written beside this file."""
    home = Path(tempfile.gettempdir(), f"stateous-sdlc-{os.getuid()}")
    home.mkdir(mode=0o700, exist_ok=True)
    return Path(shutil.copytree(CHECKOUT, home / token, dirs_exist_ok=True))
