"""Unit tests of routines: run one here and now, without a control plane, a host or a network (A-61).

    outcome = run(testing, context={"checkout": "/tmp/x"})
    assert outcome.event == "passed"

`run` runs one attempt. `run_through` runs a durable routine to its end: the clock jumps over its waits, and it starts
from the top after each step and each wait, so that a routine that is not deterministic is found out.
"""

from __future__ import annotations

from stateous_supervisor.sdk.context import EnteredBy
from stateous_supervisor.testing.once import Outcome, Question, run
from stateous_supervisor.testing.plane import After
from stateous_supervisor.testing.through import NotDeterministic, run_through

__all__ = ["After", "EnteredBy", "NotDeterministic", "Outcome", "Question", "run", "run_through"]
