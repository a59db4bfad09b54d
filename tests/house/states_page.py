"""Writes `docs/reference/states.md` from the tables of `stateous_contract.states`.

``make docs`` writes it anew; a test fails when the page and the tables disagree.
"""

from __future__ import annotations

from pathlib import Path

from stateous_contract.states import TASK_LIFE, Move, TaskState, TokenStatus, status_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"
LIVE = (TaskState.PENDING, TaskState.RUNNING, TaskState.PARKED)

HEAD = """\
# States

Written from the tables of `stateous_contract.states`; a test keeps it so.

A task has one `current_state`. The words of the public protocol are a projection of it.
A parked task always says why in its stop reason; one whose reason begins with `resuming:` is ready and counts as queued.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *words(), "", *moves(), "", *tokens(), ""])


def words() -> list[str]:
    rows = [
        f"| `{state}` | `{status_of(state, None)}` | {'yes' if state.is_final else ''} |"
        for state in TaskState
    ]
    return ["| `current_state` | public word | final |", "|---|---|---|", *rows]


def moves() -> list[str]:
    cells = [[TASK_LIFE.get((state, move)) for state in LIVE] for move in Move]
    rows = [
        f"| {move} | " + " | ".join(f"`{goal}`" if goal else "" for goal in row) + " |"
        for move, row in zip(Move, cells, strict=True)
    ]
    head = "| move | " + " | ".join(f"from `{state}`" for state in LIVE) + " |"
    lead = "Where each move takes a task. An empty cell does not exist: rules and database refuse it."
    return [lead, "", head, "|---|" + "---|" * len(LIVE), *rows]


def tokens() -> list[str]:
    final = ", ".join(f"`{status}`" for status in TokenStatus if status.is_final)
    live = ", ".join(f"`{status}`" for status in TokenStatus if not status.is_final)
    return [f"A token is {live}, or one of {final}; those never change again."]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
