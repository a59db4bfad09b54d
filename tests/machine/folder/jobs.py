"""One routine in a thread and one in a process of its own, which do what they are told."""

from _jobs import work

from contract import events, states
from stateous_supervisor import on_state


@on_state(states.thread)
def thread(ctx):
    work(ctx)
    return events.done()


@on_state(states.own, isolation="process")
def own(ctx):
    work(ctx)
    return events.done()
