"""`stateous-supervisor`: the commands, and how each of them ends (A-60).

Only the command that is asked for is imported, so that the daemon carries no other command's modules.
Expected faults are one sentence on stderr and an exit code, never a traceback.
"""

from __future__ import annotations

import importlib
import io
import json
import keyword
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Annotated, Any, Final

import typer

import stateous_supervisor
from stateous_supervisor.agent.faults import Denied, Exit, Fault, PeerViolation, Refused, Unanswered
from stateous_supervisor.cli import platforms

PROGRAM: Final = "stateous-supervisor"
COMMANDS: Final = {
    "run": "stateous_supervisor.cli.run",
    "check": "stateous_supervisor.cli.check",
    "config": "stateous_supervisor.cli.config",
    "init": "stateous_supervisor.cli.init",
    "contract": "stateous_supervisor.cli.contract",
    "try": "stateous_supervisor.cli.rehearsing",
    "status": "stateous_supervisor.cli.status",
    "task": "stateous_supervisor.cli.task",
    "reload": "stateous_supervisor.cli.reload",
    "drain": "stateous_supervisor.cli.drain",
    "doctor": "stateous_supervisor.cli.doctor",
    "service": "stateous_supervisor.cli.service",
    "demo": "stateous_supervisor.cli.demo",
}
EPILOG: Final = (
    "Exit codes: 0 done, stopped or drained; 1 second signal or a failed outcome; 64 command line; "
    "69 control plane not reached; 70 fault of ours; 73 no state folder; 75 held by another agent; "
    "76 refused by the control plane; 78 stateous.yaml or folder; 130 Ctrl-C."
)
ABOUT: Final = "Claims tasks from a control plane and runs the routines of a folder."
PIPE_CLOSED: Final = 141

# Typer's own class for a wrong command line, from whichever copy of Click it brings.
_UsageError: Any = typer.BadParameter.__mro__[1]


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"{PROGRAM} {stateous_supervisor.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_show_version),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a fault of ours.")] = False,
) -> None:
    """Take the options that come before a command."""


def build(only: str | None = None) -> typer.Typer:
    """Return the commands, all of them or one alone."""
    app = typer.Typer(
        name=PROGRAM,
        help=ABOUT,
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback(help=ABOUT, epilog=EPILOG)(_root)
    for name, module in COMMANDS.items():
        if only in (None, name):
            _add(app, name, importlib.import_module(module))
    return app


def _add(app: typer.Typer, name: str, module: ModuleType) -> None:
    """Add the command of a module, or the commands below its name."""
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        command = getattr(module, f"{name}_" if keyword.iskeyword(name) else name)
        app.command(name, short_help=first_sentence(command))(command)


def first_sentence(command: Callable[..., None]) -> str:
    """Return what the list of commands says of one: the whole first sentence of its help, where Click would cut it."""
    first = " ".join((command.__doc__ or "").split()).split(". ")[0]
    return first.removesuffix(".") + "."


def main() -> None:
    """Run the command of this process and end with its exit code."""
    _open_what_is_closed()
    _buffer_stdout()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """Keep the standard descriptors from being taken by a file of ours (BH-033); what a shell closed leads nowhere."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    # Without them a sentence about a fault would be printed among the data.
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _buffer_stdout() -> None:
    """Have stdout keep what it could not write, which `_run` asks it for; with PYTHONUNBUFFERED it would forget it."""
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        encoding = sys.stdout.encoding
        sys.stdout = open(1, "w", buffering=1, encoding=encoding, closefd=False)  # noqa: SIM115


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter must not flush once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever read has seen enough
            return PIPE_CLOSED
        print(f"error: stdout cannot be written: {error.strerror}", file=sys.stderr)
        return Exit.NO_STATE_FOLDER
    return code


def _run(arguments: Sequence[str]) -> int:
    """Raises what stdout refused as the OSError that it is; everything else becomes an exit code."""
    named = next((word for word in arguments if not word.startswith("-")), None)
    unfit = platforms.fault(sys.platform, named, is_inline="--inline" in arguments)
    if unfit is not None:
        return _end(arguments, Exit.USAGE, unfit)
    try:
        result = build(named if named in COMMANDS else None)(list(arguments), PROGRAM, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return _end(arguments, Exit.INTERRUPTED, "interrupted")
    except SystemExit as end:  # what Typer makes of a broken pipe
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except Exception as error:  # the outermost boundary: whatever happened becomes a code and a sentence
        if isinstance(error, OSError):
            sys.stdout.flush()  # raises again what it raised
        if "--debug" in arguments:
            traceback.print_exc()
        if "NoArgs" in type(error).__name__:  # its message is the help text
            print(error, file=sys.stderr)
            return Exit.USAGE
        return _end(arguments, *judge(error))
    if result == Exit.INTERRUPTED:  # what Typer makes of Ctrl-C
        return _end(arguments, Exit.INTERRUPTED, "interrupted")
    return int(result) if isinstance(result, int) else Exit.DONE


def judge(error: Exception) -> tuple[Exit, str]:
    """Return the exit code and the sentence for what a command raised."""
    match error:
        case Fault():
            return error.exit_code, error.sentence
        case Refused():
            return Exit.REFUSED, f"the control plane refused ({error.code}): {error.sentence}"
        case PeerViolation() | Denied():
            return Exit.REFUSED, error.sentence
        case Unanswered():
            return Exit.UNREACHABLE, error.sentence
        case _UsageError():
            return Exit.USAGE, error.format_message()
    more = "--debug before the command shows more"
    return Exit.OURS, f"a fault of ours: {type(error).__name__}: {error} ({more})"


def _end(arguments: Sequence[str], code: Exit, sentence: str) -> int:
    """Say what went wrong: on stderr, and with ``--json`` as the one document that there is then."""
    prefix = "" if sentence.startswith("Usage:") else "error: "  # without a command, the sentence is the help
    for line in sentence.splitlines():
        print(f"{prefix}{line}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": sentence, "code": code.name.lower()}))
    return int(code)
