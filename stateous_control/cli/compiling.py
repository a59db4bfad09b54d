"""The command `compile`: what is wrong with a workflow file, all at once, and the graph document to serve."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.files import read_bytes
from stateous_control.cli.options import AsJson
from stateous_control.cli.screen import clean, document, remark, say

if TYPE_CHECKING:
    from stateous_control.graph.document import Fault


def compile_(
    file: Annotated[Path, typer.Argument(help="A workflow file, YAML or JSON.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the graph document; - is stdout."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check a workflow file and say everything that is wrong with it, with lines."""
    from stateous_control.graph.compiler import compile_file, dump

    compiled = compile_file(read_bytes(file), name=file.name)
    graph = compiled.graph
    if graph is not None and output not in (None, "-"):
        _write(Path(output), dump(graph.document))
    if as_json and (output != "-" or graph is None):
        document(
            {
                "ok": graph is not None,
                "workflow": graph.workflow if graph else None,
                "checksum": graph.checksum if graph else None,
                "faults": [_as_json(fault) for fault in compiled.faults],
                "warnings": [_as_json(fault) for fault in compiled.warnings],
            }
        )
    else:
        _show(file, "warning", compiled.warnings)
        _show(file, "error", compiled.faults)
    if graph is None:
        return Exit.BAD_FILE
    if output == "-":
        say(dump(graph.document).rstrip("\n"))
    elif not as_json:
        say(f"{clean(graph.workflow)}: {len(graph.main.states)} states, {graph.checksum}")
    return Exit.OK


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all: a control plane may be about to read it."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise Failure(Exit.BAD_FILE, f"{file} cannot be written: {error.strerror}") from None


def _show(file: Path, kind: str, faults: Iterable[Fault]) -> None:
    for fault in faults:
        place = f"{file}:{fault.line}" if fault.line is not None else str(file)
        remark(f"{clean(place)}: {kind}: {clean(fault.message)}")


def _as_json(fault: Fault) -> dict[str, Any]:
    return {"message": fault.message, "path": list(fault.path), "line": fault.line}
