"""`stateous-control`: the control plane on the command line. Maps whatever happens to an exit code and a sentence.

Heavy imports are made by the commands themselves, so that ``--help`` and the client commands start quickly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any, Final

import typer

from stateous_control.cli import (
    compiling,
    forgetting,
    keys,
    questions,
    routines,
    serving,
    starting,
    supervisors,
    tasks,
    tokens,
    tools,
)
from stateous_control.cli.exits import Exit, Failure
from stateous_control.cli.screen import (
    buffer_stdout,
    clean,
    leave_stdout,
    line,
    open_what_is_closed,
    remark,
    say,
)

# Typer's own words for a wrong command line, whichever copy of Click they come from.
_UsageError: Any = typer.BadParameter.__mro__[1]
INTERRUPTED: Final = Failure(Exit.INTERRUPTED, "interrupted")

app = typer.Typer(
    name="stateous-control",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="The control plane: keeps tokens that move through a graph of states, and gives out their tasks.",
    epilog="Exit codes: 0 ok, 1 the outcome is a failure, 64 command line, 69 not reached, 70 a mistake of ours, "
    "73 no data folder, 75 in use, 76 refused, 78 bad file, 130 Ctrl-C.",
)
app.command()(serving.serve)
app.command()(serving.migrate)
app.command()(forgetting.retention)
app.command("compile")(compiling.compile_)
tokens.app.command()(starting.start_many)
app.add_typer(tokens.app, name="token")
app.add_typer(supervisors.app, name="supervisor")
tasks.app.command()(routines.start)
tasks.app.command()(routines.wait)
app.add_typer(tasks.app, name="task")
app.add_typer(questions.app, name="question")
app.add_typer(keys.app, name="key")
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    tools.postgres
)
app.command()(serving.unit)
for _room in (app, tokens.app, supervisors.app, tasks.app, questions.app, keys.app):
    for _command in _room.registered_commands:  # the whole first sentence, where Click would cut it
        _command.short_help = (
            " ".join((_command.callback.__doc__ or "").split()).split(". ")[0].rstrip(".") + "."
        )


def _show_version(is_asked: bool) -> None:
    if is_asked:
        say(f"stateous-control {metadata.version('stateous-supervisor')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_show_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of mistakes of ours.")] = False,
) -> None:
    """The control plane: keeps tokens that move through a graph of states, and gives out their tasks."""


def main() -> None:
    """Run the command of this process and end with its exit code."""
    open_what_is_closed()
    buffer_stdout()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return its exit code. Says what went wrong, on stderr and with ``--json`` as a document."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except OSError as error:
        leave_stdout()
        if isinstance(error, BrokenPipeError):  # whoever read us has seen enough
            return Exit.PIPE_CLOSED
        remark(f"error: stdout cannot be written: {error.strerror}")
        return Exit.NO_PLACE
    return code


def _run(arguments: Sequence[str]) -> int:
    """Raises what stdout refused as the OSError that it is; everything else becomes an exit code."""
    try:
        result = app(list(arguments), standalone_mode=False)
    except Failure as failure:
        return _fail(arguments, failure)
    except _UsageError as error:
        return _refuse(arguments, error)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(arguments, INTERRUPTED)
    except SystemExit as end:  # what Typer makes of a broken pipe
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except Exception as error:
        # The outermost boundary: a mistake of ours is one sentence, unless somebody wants to see more.
        if isinstance(error, OSError):
            sys.stdout.flush()  # raises again what it raised
        if "--debug" in arguments:
            raise
        sentence = f"stateous-control made a mistake: {type(error).__name__}: {error} (--debug shows where)"
        return _fail(arguments, Failure(Exit.FAULT, sentence))
    if result == Exit.INTERRUPTED:  # what Typer makes of Ctrl-C
        return _fail(arguments, INTERRUPTED)
    return result if isinstance(result, int) else Exit.OK


def _refuse(arguments: Sequence[str], error: Any) -> int:
    if "NoArgs" in type(error).__name__:  # its message is the help text
        remark(error.format_message())
        return Exit.USAGE
    return _fail(arguments, Failure(Exit.USAGE, error.format_message()))


def _fail(arguments: Sequence[str], failure: Failure) -> int:
    for each in failure.sentence.splitlines():
        remark(f"error: {clean(each)}")
    if "--json" in arguments:
        line({"error": failure.sentence, "code": failure.code})
    return failure.exit_code
