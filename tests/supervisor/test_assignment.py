"""Every cell of the table of an assignment's life, and what holds whatever happens."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from stateous_supervisor.agent.assignment import (
    LIFE,
    Assignment,
    Cancel,
    Close,
    Declined,
    Delivered,
    Doubted,
    Drop,
    Effect,
    Fenced,
    Free,
    GivenBack,
    Happening,
    HostDied,
    Identity,
    Keep,
    Kept,
    Lost,
    Parked,
    Parking,
    Phase,
    Renewed,
    Send,
    Slept,
    Tell,
    advance,
)
from stateous_supervisor.link.frames import Began, Outcome

HAPPENINGS: dict[str, Happening] = {
    "began": Began(task=1, attempt=1, at=0.0),
    "outcome": Outcome(task=1, attempt=1, outcome="event", event="done"),
    "lost": Lost("cancelled"),
    "parking": Parking(is_out=True),
    "parked": Parked("ask"),
    "renewed": Renewed(99.0),
    "doubted": Doubted(),
    "slept": Slept(60.0),
    "fenced": Fenced(can_release=True),
    "kept": Kept(),
    "delivered": Delivered(),
    "declined": Declined(code="invalid_payload", sentence="no"),
    "host_died": HostDied(reason="killed by SIGKILL", is_alone=True, can_release=True),
    "given_back": GivenBack(reason="drain", can_release=True),
}

NOTHING: list[str] = []
# (phase, happening) -> (phase after, effects). What is not here changes nothing.
EXPECTED = {
    ("starting", "began"): ("running", NOTHING),
    ("starting", "outcome"): ("keeping", ["Keep"]),
    ("starting", "lost"): ("cancelling", ["Cancel", "Drop", "Free", "Tell"]),
    ("starting", "renewed"): ("starting", NOTHING),
    ("starting", "doubted"): ("starting", ["Tell"]),
    ("starting", "host_died"): ("keeping", ["Keep"]),
    ("starting", "given_back"): ("keeping", ["Keep"]),
    ("running", "outcome"): ("keeping", ["Keep"]),
    ("running", "lost"): ("cancelling", ["Cancel", "Drop", "Free", "Tell"]),
    ("running", "renewed"): ("running", NOTHING),
    ("running", "doubted"): ("running", ["Tell"]),
    ("running", "host_died"): ("keeping", ["Keep"]),
    ("running", "given_back"): ("keeping", ["Keep"]),
    ("starting", "slept"): ("starting", NOTHING),
    ("running", "slept"): ("running", NOTHING),
    ("keeping", "slept"): ("keeping", NOTHING),
    ("reporting", "slept"): ("reporting", NOTHING),
    ("starting", "fenced"): ("starting", ["Cancel", "Tell"]),
    ("running", "fenced"): ("running", ["Cancel", "Tell"]),
    ("starting", "parking"): ("starting", NOTHING),
    ("running", "parking"): ("running", NOTHING),
    ("starting", "parked"): ("parked", ["Drop", "Free", "Tell"]),
    ("running", "parked"): ("parked", ["Drop", "Free", "Tell"]),
    ("parked", "outcome"): ("over", ["Close"]),
    ("parked", "host_died"): ("over", ["Close"]),
    ("parked", "given_back"): ("over", ["Close"]),
    ("cancelling", "outcome"): ("over", ["Close"]),
    ("cancelling", "host_died"): ("over", ["Close"]),
    ("cancelling", "given_back"): ("over", ["Close"]),
    ("keeping", "kept"): ("reporting", ["Free", "Send"]),
    ("keeping", "renewed"): ("keeping", NOTHING),
    ("reporting", "renewed"): ("reporting", NOTHING),
    ("reporting", "delivered"): ("over", ["Close"]),
    ("reporting", "declined"): ("keeping", ["Tell", "Keep"]),
}


def at(phase: Phase, **more: object) -> Assignment:
    start = Assignment(
        task=1,
        attempt=1,
        state="s",
        token="t",
        identity=Identity("a", "i"),
        claimed_at=0.0,
        trusted_until=10.0,
    )
    return replace(start, phase=phase, **more)


def names(effects: tuple[Effect, ...]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


@pytest.mark.parametrize(("phase", "happening"), list(itertools.product(Phase, HAPPENINGS)))
def test_each_cell_of_the_table(phase: Phase, happening: str) -> None:
    after, effects = advance(at(phase), HAPPENINGS[happening], 5.0)

    assert (after.phase.value, names(effects)) == EXPECTED.get(
        (phase.value, happening), (phase.value, NOTHING)
    )


def test_every_happening_has_a_cell_somewhere() -> None:
    assert {happening for _, happening in LIFE} == {type(h) for h in HAPPENINGS.values()}


def test_what_is_not_in_the_table_leaves_the_very_same_assignment() -> None:
    over = at(Phase.OVER)

    assert advance(over, HAPPENINGS["outcome"], 5.0)[0] is over


@pytest.mark.parametrize("code", ["attempt_over", "task_not_held", "task_not_found"])
def test_a_report_that_is_not_ours_any_more_is_dropped_a_38(code: str) -> None:
    after, effects = advance(at(Phase.REPORTING), Declined(code=code, sentence="no"), 5.0)

    assert after.phase is Phase.OVER
    assert names(effects) == ["Drop", "Tell", "Close"]


def test_a_refused_outcome_is_replaced_by_a_failure_that_carries_the_refusal_a_38() -> None:
    _, effects = advance(
        at(Phase.REPORTING), Declined(code="invalid_payload", sentence="pages is missing"), 5.0
    )

    (keep,) = [effect for effect in effects if isinstance(effect, Keep)]
    assert keep.report.outcome == "failed"
    assert "invalid_payload" in str(keep.report.error)
    assert "pages is missing" in str(keep.report.error)


def test_an_outcome_is_replaced_once_a_38() -> None:
    replaced = at(Phase.REPORTING, is_replaced=True)

    after, effects = advance(replaced, Declined(code="invalid_payload", sentence="no"), 5.0)

    assert after.phase is Phase.OVER
    assert "Keep" not in names(effects)


def test_a_parked_attempt_reports_nothing_and_ends_with_its_routine_s1_47_s1_48() -> None:
    parked, effects = advance(at(Phase.RUNNING, began_at=1.0), Parked("ask"), 5.0)
    assert Tell("task.parked", {"call": "ask"}) in effects
    assert (parked.is_slot_free, parked.outcome, parked.ended_at) == (True, "parked", 5.0)

    for late in (Lost("attempt_over"), Renewed(99.0), Doubted(), Kept(), Delivered(), Parked("ask")):
        assert advance(parked, late, 6.0) == (parked, ())
    _, ending = advance(parked, Outcome(task=1, attempt=1, outcome="failed", error="it swallowed it"), 7.0)

    assert ending == (Close("parked"),)


def test_a_heartbeat_that_overtakes_the_answer_to_an_ask_is_no_loss_s1_45() -> None:
    """What has parked is called lost by the next heartbeat; the answer that is on its way says which it was."""
    overtaking = Lost("attempt_over", by_beat=True)
    asking, _ = advance(at(Phase.RUNNING, began_at=1.0), Parking(is_out=True), 2.0)
    assert advance(asking, overtaking, 3.0) == (asking, ())
    assert advance(asking, Parked("ask"), 4.0)[0].phase is Phase.PARKED

    for certain in (Lost("attempt_over"), Lost("cancelled", by_beat=True)):
        assert advance(asking, certain, 4.0)[0].phase is Phase.CANCELLING
    answered, _ = advance(asking, Parking(is_out=False), 4.0)
    assert advance(answered, overtaking, 5.0)[0].phase is Phase.CANCELLING


def test_steps_that_were_not_come_by_are_told_s2_13() -> None:
    unmet = [f"s#{number}" for number in range(12)]

    _, effects = advance(
        at(Phase.RUNNING), Outcome(task=1, attempt=1, outcome="event", event="done", unmet=unmet), 5.0
    )

    (told,) = [effect for effect in effects if isinstance(effect, Tell)]
    assert (told.event, told.keys["count"]) == ("replay.diverged", 12)
    assert str(told.keys["steps"]).split(", ") == unmet[:10]


def test_a_strict_routine_that_parked_is_told_of_as_diverged_too_s2_13() -> None:
    _, effects = advance(at(Phase.RUNNING), Parked("diverged", "render#1"), 5.0)

    told = {effect.event: effect.keys for effect in effects if isinstance(effect, Tell)}
    assert told == {
        "task.parked": {"call": "diverged"},
        "replay.diverged": {"steps": "render#1", "count": 1},
    }


def test_a_slot_is_freed_once_although_the_report_is_replaced() -> None:
    kept, first = advance(at(Phase.KEEPING), Kept(), 1.0)
    declined, _ = advance(kept, Declined(code="invalid_payload", sentence="no"), 2.0)

    _, second = advance(declined, Kept(), 3.0)

    assert "Free" in names(first)
    assert names(second) == ["Send"]


def test_a_lone_routine_whose_host_died_failed_a_23() -> None:
    _, effects = advance(
        at(Phase.RUNNING), HostDied("killed by SIGSEGV", is_alone=True, can_release=True), 5.0
    )

    (keep,) = effects
    assert isinstance(keep, Keep)
    assert keep.report.outcome == "failed"
    assert "SIGSEGV" in str(keep.report.error)


def test_one_of_several_whose_host_died_is_released_a_23() -> None:
    _, effects = advance(
        at(Phase.RUNNING), HostDied("killed by SIGSEGV", is_alone=False, can_release=True), 5.0
    )

    (keep,) = effects
    assert isinstance(keep, Keep)
    assert (keep.report.outcome, keep.report.reason) == ("released", "host_died: killed by SIGSEGV")


@pytest.mark.parametrize(("can_release", "outcome"), [(True, "released"), (False, "failed")])
def test_without_release_what_is_given_back_is_a_failure_a_43(can_release: bool, outcome: str) -> None:
    _, effects = advance(at(Phase.RUNNING), GivenBack("drain", can_release=can_release), 5.0)

    (keep,) = effects
    assert isinstance(keep, Keep)
    assert keep.report.outcome == outcome


def test_doubt_is_told_once_until_the_next_renewal() -> None:
    doubted, first = advance(at(Phase.RUNNING), Doubted(), 11.0)
    again, second = advance(doubted, Doubted(), 12.0)
    renewed, _ = advance(again, Renewed(50.0), 13.0)
    _, third = advance(renewed, Doubted(), 51.0)

    assert [names(first), names(second), names(third)] == [["Tell"], [], ["Tell"]]


def test_a_failed_outcome_is_told_with_its_traceback() -> None:
    failed = Outcome(task=1, attempt=1, outcome="failed", error="ValueError: x", traceback="Traceback …")

    _, effects = advance(at(Phase.RUNNING), failed, 5.0)

    (told,) = [effect for effect in effects if isinstance(effect, Tell)]
    assert told.keys == {"error": "ValueError: x", "traceback": "Traceback …"}


class AssignmentLife(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.assignment = at(Phase.STARTING)
        self.effects: list[Effect] = []
        self.let_go_at: int | None = None
        self.over_at: int | None = None
        self.now = 0.0

    @rule(
        happening=st.sampled_from(
            [
                *HAPPENINGS.values(),
                Outcome(task=1, attempt=1, outcome="failed", error="x", is_dropped=True),
                Outcome(task=1, attempt=1, outcome="waiting"),
                Declined(code="attempt_over", sentence=""),
                HostDied(reason="exit code 1", is_alone=False, can_release=True),
                GivenBack(reason="agent_died", can_release=False),
            ]
        )
    )
    def happen(self, happening: Happening) -> None:
        self.now += 1.0
        self.assignment, effects = advance(self.assignment, happening, self.now)
        self.effects += effects
        # A fence stops the routine, and waits for its end before anything is let go.
        let_go = [effect for effect in effects if isinstance(effect, Cancel) and effect.cause != "fenced"]
        if self.let_go_at is None and let_go:
            self.let_go_at = len(self.effects)
        if self.over_at is None and self.assignment.phase is Phase.OVER:
            self.over_at = len(self.effects)

    def count(self, kind: type) -> int:
        return sum(isinstance(effect, kind) for effect in self.effects)

    @invariant()
    def one_outcome_is_kept_and_replaced_once_at_most(self) -> None:
        assert self.count(Keep) <= 1 + self.assignment.is_replaced

    @invariant()
    def a_slot_is_freed_once_at_most(self) -> None:
        assert self.count(Free) <= 1

    @invariant()
    def nothing_is_sent_before_it_was_kept(self) -> None:
        assert self.count(Send) <= self.count(Keep)

    @invariant()
    def nothing_is_reported_after_letting_go(self) -> None:
        if self.let_go_at is not None:
            assert not any(isinstance(effect, (Keep, Send)) for effect in self.effects[self.let_go_at :])

    @invariant()
    def nothing_happens_after_the_end(self) -> None:
        if self.over_at is not None:
            assert len(self.effects) == self.over_at

    @invariant()
    def the_end_is_told_once_and_leaves_no_slot_taken(self) -> None:
        assert self.count(Close) == (self.assignment.phase is Phase.OVER)
        if self.assignment.phase is Phase.OVER:
            assert self.count(Free) == 1

    @invariant()
    def what_is_let_go_is_forgotten(self) -> None:
        if self.let_go_at is not None:
            assert self.count(Drop) == 1


AssignmentLife.TestCase.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)
TestAssignmentLife = AssignmentLife.TestCase


def test_a_sleep_of_the_box_is_taken_off_the_lease_a_33() -> None:
    slept, effects = advance(at(Phase.RUNNING), Slept(60.0), 5.0)

    assert (slept.trusted_until, effects) == (-50.0, ())
    assert advance(slept, Renewed(100.0), 6.0)[0].trusted_until == 100.0


@pytest.mark.parametrize(
    ("can_release", "outcome", "reason"), [(True, "released", "drain"), (False, "failed", None)]
)
def test_a_fenced_routine_that_was_stopped_is_given_back_a_32(
    can_release: bool, outcome: str, reason: str | None
) -> None:
    fenced, effects = advance(at(Phase.RUNNING), Fenced(can_release=can_release), 5.0)
    again, none = advance(fenced, Fenced(can_release=can_release), 6.0)
    dropped = Outcome(task=1, attempt=1, outcome="failed", is_dropped=True)
    _, kept = advance(again, dropped, 7.0)

    assert [effects[0], none] == [Cancel("fenced"), ()]
    (keep,) = [effect for effect in kept if isinstance(effect, Keep)]
    assert (keep.report.outcome, keep.report.reason) == (outcome, reason)


def test_what_a_fenced_routine_still_ended_with_is_reported_a_32() -> None:
    fenced, _ = advance(at(Phase.RUNNING), Fenced(can_release=True), 5.0)
    _, (keep,) = advance(fenced, Outcome(task=1, attempt=1, outcome="event", event="made"), 6.0)

    assert isinstance(keep, Keep)
    assert (keep.report.outcome, keep.report.event) == ("event", "made")
