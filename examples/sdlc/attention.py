"""A ticket that cannot go on by itself waits here for a person, who fires `retry` or `abandoned`."""

from contract import TicketContext, states
from stateous_supervisor import on_state


@on_state(states.attention)
def attention(ctx: TicketContext) -> None:
    ctx.note(f"{ctx['title']!r} needs a person: fire retry or abandoned")
