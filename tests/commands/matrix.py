"""Every command of both programs, found in the programs themselves, with a command line for each.

A new command is in every test of this folder by itself. Where it has an argument of a kind that there was not before,
`line` says what is missing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from stateous_control.cli import main as control
from stateous_supervisor.cli import main as supervisor

# By what stands for it in the usage. Words in braces are places that a test gives.
ARGUMENTS = {
    "FOLDER": "{folder}",
    "SOURCE": "{url}",
    "STATE|@NAME": "plain",
    "TOKEN": "T-1",
    "EVENT": "go",
    "TASK": "17",
    "QUESTION": "17",
    "ANSWER": "yes",
    "ROUTINE": "reports.weekly",
    "FILE": "{file}",
    "NAME": "ann",
    "NAME|ID": "ann",
    "PROGRAM [ARGUMENT]...": "psql",
}
OPTIONS = {"--role": "viewer"}
OF_ITS_OWN = {"stateous-control token start-many": {"FILE": "{lines}"}}
# What is not asked for in the usage, but without which there is nothing to do.
MORE = {"stateous-control retention": ["--keep-logs", "1d"], "stateous-control serve": ["{file}"]}


@dataclass(frozen=True)
class Command:
    """A command that does something: its name, and what it takes as the program itself says."""

    name: str
    options: frozenset[str]
    arguments: tuple[str, ...]
    needed: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return self.name.split()

    @property
    def has_json(self) -> bool:
        return "--json" in self.options

    @property
    def has_folder(self) -> bool:
        """Whether it reads a supervisor's folder; `init` makes one."""
        return self.arguments[:1] == ("FOLDER",)

    @property
    def asks(self) -> bool:
        """Whether it asks a control plane and ends by what that says. Not `run`, which never ends for that."""
        is_client = self.name.startswith("stateous-control") and "--url" in self.options
        return is_client or "SOURCE" in self.arguments

    @property
    def has_database(self) -> bool:
        return "--database" in self.options

    def line(self, places: Mapping[str, str], *more: str) -> list[str]:
        """Return the shortest command line that is complete, and `more`."""
        words = [*self.words]
        given = ARGUMENTS | OPTIONS | OF_ITS_OWN.get(self.name, {})
        for name in self.needed:
            assert name in given, f"say in {__name__} what {self.name} may get for {name}"
            words += [name, given[name]] if name in OPTIONS else [given[name]]
        words += MORE.get(self.name, [])
        return [word.format_map(places) for word in words] + list(more)


def commands() -> list[Command]:
    """Every command that does something, of both programs."""
    programs = {"stateous-supervisor": supervisor.build(), "stateous-control": control.app}
    found = [each for name, app in programs.items() for each in _leaves(typer.main.get_command(app), name)]
    return sorted(found, key=lambda each: each.name)


def _leaves(command: Any, name: str) -> Iterator[Command]:
    below = getattr(command, "commands", None)
    if below is not None:
        for word, each in below.items():
            yield from _leaves(each, f"{name} {word}")
        return
    options = [each for each in command.params if each.param_type_name == "option"]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    yield Command(
        name=name,
        options=frozenset(flag for each in options for flag in each.opts),
        arguments=tuple(_shown(each) for each in arguments),
        needed=(
            *(_shown(each) for each in arguments if each.required),
            *(each.opts[0] for each in options if each.required),
        ),
    )


def _shown(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())
