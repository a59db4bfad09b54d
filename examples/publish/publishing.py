"""A report is rendered, cools off, and is announced: each once, whatever dies meanwhile."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from _press import render, send

from stateous_supervisor import AsyncContext, routine


class Request(TypedDict):
    report_id: int
    email: str
    cool_off: NotRequired[str]


class Published(TypedDict):
    url: str


@routine("reports.publish")
async def publish(ctx: AsyncContext[Any], request: Request) -> Published:
    # Runs once. Later attempts get the stored address and do not render again.
    url = await ctx.step("render", lambda: render(request["report_id"]))

    # Parks: no slot, no connection, no memory. Once the time is over, later attempts come by at once.
    await ctx.sleep_for("cool-off", request.get("cool_off", "5m"))

    await ctx.step("notify", lambda: send(request["email"], url))
    return {"url": url}
