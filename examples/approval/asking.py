"""Asks for a decision and waits for it: returning None leaves the task waiting, with nothing running for it."""

from contract import ReleaseContext, events, states
from stateous_supervisor import on_state


@on_state(states.asking)
def asking(ctx: ReleaseContext) -> None:
    reminder = "" if ctx.visit == 1 else f" (reminder {ctx.visit - 1})"
    ctx.note(f"may {ctx['version']} go out? fire approved or rejected{reminder}")
    ctx.schedule(events.remind, after=ctx["remind_after"])
