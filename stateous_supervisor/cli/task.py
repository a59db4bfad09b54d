"""`stateous-supervisor task log FOLDER TASK`: what the routines of a task printed on this box (A-63).

Read from the state folder: it needs no network, and no agent that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stateous_supervisor.agent import output
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.output import Printed
from stateous_supervisor.cli import options
from stateous_supervisor.cli.asking import places

app = typer.Typer(help="Look at what tasks did on this box.", no_args_is_help=True)

TaskId = Annotated[
    int, typer.Argument(help="The task's number, as the log and 'status' have it.", metavar="TASK")
]
Attempt = Annotated[int | None, typer.Option(help="Only this attempt.", metavar="NUMBER")]


@app.command("log", short_help="Show what the routines of a task printed on this box.")
def log(
    folder_path: options.Folder,
    task: TaskId,
    attempt: Attempt = None,
    state_dir: options.StateDir = None,
    as_json: options.Json = False,
) -> None:
    """Show what the routines of a task, and the programs they started, printed on this box.

    Each attempt's newest lines are kept, also after its end and without a running agent. Ends with 69 if nothing is.
    """
    looked = places(folder_path, state_dir)
    found = [each for each in _read(looked, task) if attempt in (None, each.attempt)]
    if not found:
        raise Fault(Exit.UNREACHABLE, _nothing(looked, task, attempt))
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        print("\n".join(line for each in found for line in _lines(each)))


def _read(looked: Sequence[Path], task: int) -> list[Printed]:
    try:
        return next((found for place in looked if (found := output.read(place, task))), [])
    except OSError as error:
        mend = "ask as the agent's user, or with sudo"
        why = (error.strerror or str(error)).lower()
        raise Fault(Exit.UNREACHABLE, f"{error.filename}: cannot be read: {why}; {mend}") from None


def _nothing(looked: Sequence[Path], task: int, attempt: int | None) -> str:
    what = f"task {task}" if attempt is None else f"attempt {attempt} of task {task}"
    where = " or ".join(str(place / output.FOLDER) for place in looked)
    kept = next((found for place in looked if (found := output.kept(place))), [])
    tasks = [f"tasks {kept[0][0]} to {kept[-1][0]}"] if kept else ["no task"]
    return f"nothing that {what} printed is kept in {where}, where there is output of {tasks[0]}"


def _lines(printed: Printed) -> Iterator[str]:
    yield f"task {printed.task}, attempt {printed.attempt}"
    if printed.earlier:
        yield f"  … {printed.earlier} earlier lines are not kept"
    for line in printed.lines:
        if line.dropped:
            yield f"  … {line.dropped} lines are missing here: {line.text}"
        else:
            yield from _shown(line.at, line.level, line.text)


def _shown(at: str, level: str, text: str) -> Iterator[str]:
    mark = " " if level in ("info", "debug") else "!"
    for part in text.split("\n"):
        yield f"  {at[11:23]} {mark} {part}"
