"""The log must never break what it tells about."""

from __future__ import annotations

import os

from stateous_control.logs import Unbreakable


def test_a_log_whose_reader_left_loses_lines_and_nothing_else() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as stream:
        log = Unbreakable(stream)
        print("a line", file=log, flush=True)
        print("another", file=log, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)


def test_a_log_that_was_closed_loses_lines_and_nothing_else() -> None:
    stream = open(os.devnull, "w")  # noqa: PTH123, SIM115
    stream.close()
    print("a line", file=Unbreakable(stream), flush=True)
