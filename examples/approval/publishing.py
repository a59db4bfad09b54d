"""Publishes a release that was approved. `async def`: it runs on the host's event loop, beside many others."""

import asyncio

from contract import AsyncReleaseContext, events, states
from stateous_supervisor import on_state


@on_state(states.publishing)
async def publishing(ctx: AsyncReleaseContext) -> events.published:
    decision = (ctx.entered_by.payload if ctx.entered_by else None) or {}
    ctx.note(f"publishing {ctx['version']}, approved by {decision.get('by', 'nobody')}")
    await asyncio.sleep(0)  # here a real routine would talk to a package index
    return events.published()
