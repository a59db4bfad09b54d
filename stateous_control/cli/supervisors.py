"""The command ``supervisor list``: who works, what waits, and what nobody does."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import typer

from stateous_control.cli.options import URL_DEFAULT, AsJson, KeyFile, Url
from stateous_control.cli.screen import clean, document, remark, say, table

app = typer.Typer(no_args_is_help=True, help="See who works, and what waits.")


@app.callback()
def group() -> None:
    """See who works, and what waits."""


@app.command("list")
def list_(url: Url = URL_DEFAULT, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List supervisors and queues, and warn of shared names and of states that nobody serves."""
    from stateous_control.cli.client import connected

    with connected(url, key_file) as client:
        supervisors = client.get("/supervisors").value
        queues = client.get("/queues").value
        now = client.get("/health").value.get("now")
    if as_json:
        document({"supervisors": supervisors, "queues": queues})
        return
    _show_supervisors(supervisors["entries"], now)
    say("")
    _show_queues(queues["entries"])
    _warn(supervisors["entries"], queues["entries"])


def _show_supervisors(entries: list[dict[str, Any]], now: str | None) -> None:
    rows = [
        (
            each["name"],
            each.get("instance", "-"),
            each.get("version", "-"),
            _ago(each["last_seen"], now),
            each["running"],
            ", ".join(each["states"]),
        )
        for each in entries
    ]
    table(("NAME", "INSTANCE", "VERSION", "LAST SEEN", "RUNNING", "STATES"), rows)


def _show_queues(entries: list[dict[str, Any]]) -> None:
    rows = [
        (
            each["state"],
            f"{each['depth']:,}",
            f"{each['delayed']:,}",
            f"{each['running']:,}",
            f"{each['oldest_wait_s']:.0f} s" if each["depth"] else "-",
            "yes" if each["is_served"] else "no",
        )
        for each in entries
    ]
    table(("STATE", "QUEUED", "DELAYED", "RUNNING", "OLDEST WAIT", "SERVED"), rows)


def _warn(supervisors: list[dict[str, Any]], queues: list[dict[str, Any]]) -> None:
    shared = Counter(each["name"] for each in supervisors if each.get("is_duplicate"))
    for name, count in shared.items():
        remark(
            f"warning: {count} processes go by the name {clean(name)}; give each a 'name' of its own in "
            "stateous.yaml, or one can take the other's tasks for its own"
        )
    for each in queues:
        if each["depth"] and not each["is_served"]:
            tasks = "1 task waits" if each["depth"] == 1 else f"{each['depth']:,} tasks wait"
            remark(f"warning: {tasks} in {clean(each['state'])}, and nobody serves it")


def _ago(stamp: str, now: str | None) -> str:
    """Return how long ago `stamp` was by the control plane's own clock, or the stamp where that is not told."""
    if now is None:
        return stamp
    try:
        seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(stamp)).total_seconds()
    except ValueError:
        return stamp
    if seconds < 120:
        return f"{max(0, seconds):.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7_200 else f"{seconds / 3_600:.0f} h ago"
