"""`stateous-supervisor demo`: see a control plane and a supervisor at work, and nothing of it afterwards."""

from __future__ import annotations

import os
import signal
from types import FrameType

import anyio
import typer

from stateous_supervisor.agent.faults import Exit
from stateous_supervisor.demo.course import check_installed, play
from stateous_supervisor.demo.programs import STOPS, Stage
from stateous_supervisor.demo.screen import Screen


class _Stopped(KeyboardInterrupt):
    """A signal asked the demo to end. An event loop passes a KeyboardInterrupt on from wherever it strikes."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def demo() -> None:
    """Run two tickets of the sdlc example through a control plane and a supervisor, and show their histories.

    One is coded, tested, coded again and tested again; the other's routine crashes and is retried. Everything is
    in a temporary folder and ends with the demo, also on Ctrl-C.
    """
    check_installed()
    screen = Screen(os.environ)
    for number in STOPS:
        signal.signal(number, _stop)
    try:
        with Stage(os.environ) as stage:
            try:
                is_good = anyio.run(play, stage, screen)
            finally:
                # From here on it is ending already; a second Ctrl-C must not leave half of it behind.
                for number in STOPS:
                    signal.signal(number, signal.SIG_IGN)
                screen.say("\nStopping everything.", "quiet")
    except _Stopped as stopped:
        raise typer.Exit(stopped.exit_code) from None
    raise typer.Exit(Exit.DONE if is_good else Exit.ABANDONED)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise _Stopped(number)
