"""`stateous-supervisor status FOLDER`: how the agent on this box is, told by itself (A-57)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from stateous_supervisor.agent.overview import HostFacts, Snapshot, span
from stateous_supervisor.cli import options
from stateous_supervisor.cli.asking import ask, places

ANSWER_S: Final = 10.0


def status(
    folder_path: options.Folder, state_dir: options.StateDir = None, as_json: options.Json = False
) -> None:
    """Show how the agent of a folder is: what runs, its lease and age, heartbeats, outbox and hosts.

    It asks the agent on this box and needs no network. Ends with 69 if no agent runs there.
    """
    seen = ask("status", Snapshot, places(folder_path, state_dir), folder_path, within_s=ANSWER_S)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(seen), indent=2).decode())
    else:
        print("\n".join(_lines(seen)))


def _lines(seen: Snapshot) -> Iterator[str]:
    yield f"agent          {seen.supervisor} of {seen.folder}, process {seen.pid}, version {seen.version}"
    yield f"up             {span(seen.uptime_s)}, {seen.phase}"
    yield f"control plane  {seen.url}, {_reach(seen)}"
    if seen.mend is not None:
        yield f"contract       {_contract(seen)}; mend: {seen.mend}"
    yield f"slots          {seen.slots_taken} of {seen.slots} taken"
    beat = "none yet" if seen.beat_age_s is None else f"answered {span(seen.beat_age_s)} ago"
    yield f"heartbeats     {beat}, {seen.beat_failures} failed since"
    disk = "" if seen.outbox_is_writable else "; the disk refuses, no claims until it takes writes"
    disk += "; made on another box, whose claims and grants were left alone" if seen.outbox_is_copied else ""
    yield f"outbox         {seen.outbox_depth} to deliver{disk}"
    for sentence in seen.set_aside:
        yield f"set aside      {sentence}"
    for host in seen.hosts:
        yield f"host {host.generation:<9} {_host(host)}"
    if seen.lacks_host:
        yield "host           none; another one is started, after a while where they keep dying"
    if seen.last_death is not None:
        yield f"hosts died     {seen.host_deaths}, the last one: {seen.last_death}"
    for broken in seen.broken:
        where = broken.file if broken.line is None else f"{broken.file}:{broken.line}"
        yield f"left out       {where}: {broken.error}"
    if seen.reload_error:
        yield f"reload         refused: {seen.reload_error}"
    if seen.late_loops:
        yield f"late           {', '.join(seen.late_loops)}"
    yield from _table(seen)


def _reach(seen: Snapshot) -> str:
    if seen.away_s is not None:
        return f"away for {span(seen.away_s)}: {seen.away_cause}"
    if not seen.is_reached:
        return "not reached yet"
    if seen.refused_s is not None:
        return f"reached, refuses the key for {span(seen.refused_s)}; what runs goes on, claims are stopped"
    return "reached" if seen.is_claiming else "reached, claims are stopped"


def _contract(seen: Snapshot) -> str:
    if not seen.outdated:
        return "the workflow is another one; nothing is claimed"
    return f"the workflow changed; nothing is claimed for {', '.join(seen.outdated)}"


def _host(host: HostFacts) -> str:
    what = "ends with its last routine" if host.is_retired else "takes work"
    what = "for one suspect alone" if host.is_for_suspect else what
    what += f", silent for {span(host.silent_s)}" if host.silent_s else ""
    return (
        f"process {host.pid}, Python {host.python}, up {span(host.age_s)}, {what}, "
        f"{host.running} running, {host.abandoned} abandoned"
    )


def _table(seen: Snapshot) -> Iterator[str]:
    if not seen.tasks:
        return
    rows = [("task", "attempt", "state", "token", "phase", "age", "lease left", "beats", "host")]
    for task in sorted(seen.tasks, key=lambda each: -each.age_s):
        left = span(task.lease_left_s) if task.lease_left_s > 0 else "doubted"
        ids = (str(task.task), str(task.attempt), task.state, task.token or "-", task.phase)
        rows.append((*ids, span(task.age_s), left, str(task.heartbeats), str(task.host or "-")))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield ""
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for task in seen.tasks:
        if task.last_line is not None:
            yield f"printed        task {task.task}, {task.printed} lines, the last: {task.last_line.strip()}"
