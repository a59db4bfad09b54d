"""Families for rule tests: a parent at work in a parallel state, its children, and small graphs that make them."""

from __future__ import annotations

from typing import Any

from control.rules.kitchen import Kitchen, graph_of
from stateous_contract.states import TaskState

from stateous_control.graph.document import Graph
from stateous_control.rules.book import Token

VERDICT = {"ok": True}
GOING = {
    "states": {"work": {}},
    "events": {"went": {}},
    "transitions": [{"from": "__start__", "to": "work"}, {"from": "work", "to": "__end__", "on": "went"}],
}


def at_work(path: str = "proofs", name: str = "a", **context: Any) -> tuple[Kitchen, Token]:
    kitchen = Kitchen()
    return kitchen, kitchen.start(name, path=path, **context)


def child(kitchen: Kitchen, parent: Token, workflow: str) -> Token:
    (found,) = [each for each in kitchen.book.children(parent) if each.workflow == workflow]
    return found


def done(kitchen: Kitchen, token: Token, event: str = "verdict", payload: Any = VERDICT) -> None:
    """Claim the token's task and report an event."""
    task = kitchen.task_of(token)
    if task.current_state is TaskState.PENDING:
        kitchen.claim(task)
    kitchen.report(task, "event", event=event, payload=payload, supervisor="s", attempt=task.attempt)


def ended(kitchen: Kitchen, parent: Token, ok: bool = True) -> None:
    """Let both children of a visit end."""
    spelling, layout = child(kitchen, parent, "spelling"), child(kitchen, parent, "layout")
    done(kitchen, spelling, payload={"ok": ok})
    done(kitchen, spelling, "noted", None)
    done(kitchen, layout)


def family(
    *,
    first: str = "both",
    inputs: list[str] | None = None,
    joined: str | None = None,
    timeout: str | None = None,
    needs: str | None = None,
) -> Graph:
    """A workflow with one parallel state, `both`, of one child workflow, `c`; `needs` is a key that it must have."""
    both = {"parallel": ["c"], "join": "all", "inputs": inputs or []} | (
        {"timeout": timeout} if timeout else {}
    )
    out = {"from": "both", "to": "__end__", "on": "joined"} | ({"when": joined} if joined else {})
    transitions = [
        {"from": "__start__", "to": first},
        {"from": "idle", "to": "both", "on": "went"},
        out,
    ]
    child_of_it = dict(GOING) | ({"context": "Child"} if needs else {})
    schemas = {"Child": {"type": "object", "required": [needs]}} if needs else {}
    return graph_of(
        {"idle": {}, "both": both}, {"went": {}}, transitions, workflows={"c": child_of_it}, schemas=schemas
    )


def nested() -> Graph:
    outer = {
        "states": {"deep": {"parallel": ["inner"], "join": "any"}},
        "events": {},
        "transitions": [
            {"from": "__start__", "to": "deep"},
            {"from": "deep", "to": "__end__", "on": "joined"},
        ],
    }
    return graph_of(
        {"both": {"parallel": ["outer"], "join": "all"}},
        {},
        [{"from": "__start__", "to": "both"}, {"from": "both", "to": "__end__", "on": "joined"}],
        workflows={"outer": outer, "inner": dict(GOING)},
    )
