"""States, occurrences and marks of a contract (D.2 of the published package, and what is better here)."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Never

import pytest
from pydantic import BaseModel

import stateous_supervisor
from stateous_supervisor import Context, Occurrence, OutcomeError, StateRef, on_state
from stateous_supervisor.sdk.marks import context_model, duration_s, mark_of


class Verdict(BaseModel):
    approved: bool
    note: str = ""


class Tree(BaseModel):
    children: list[Tree] = []


class Submitted(Occurrence[None]):
    name = "submitted"


class Reviewed(Occurrence[Verdict]):
    name = "reviewed"


class Grown(Occurrence[Tree]):
    name = "grown"


class Listed(Occurrence[list[int]]):
    name = "listed"


review = StateRef("review", emits=(Reviewed, Submitted))


def test_the_package_gives_the_names_that_routines_import() -> None:
    assert {"AsyncContext", "Context", "Occurrence", "OutcomeError", "StateRef", "on_state"} <= set(
        stateous_supervisor.__all__
    )
    for name in stateous_supervisor.__all__:
        assert getattr(stateous_supervisor, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Workflow'"):
        _ = stateous_supervisor.Workflow


def test_an_occurrence_holds_what_it_was_given_and_validates_nothing() -> None:
    wrong: Any = {"a": 1}
    assert Reviewed(wrong).payload == wrong
    assert Submitted().payload is None
    assert repr(Submitted()) == "Submitted(None)"


def test_occurrences_compare_by_class_and_payload() -> None:
    assert Reviewed(Verdict(approved=True)) == Reviewed(Verdict(approved=True))
    assert Reviewed(Verdict(approved=True)) != Reviewed(Verdict(approved=False))
    assert Submitted() != Listed([])


@pytest.mark.parametrize(
    ("event", "model"), [(Submitted, None), (Reviewed, Verdict), (Listed, list[int]), (Grown, Tree)]
)
def test_an_event_knows_its_model(event: Any, model: Any) -> None:
    assert event.payload_model() == model
    below: Any = type("below", (event,), {})
    assert below.payload_model() == model


def test_a_state_may_emit_exactly_its_classes() -> None:
    below = type("below", (Reviewed,), {})
    assert review.may_emit(Reviewed(Verdict(approved=True)))
    assert not review.may_emit(below(None))
    assert not review.may_emit(Grown(Tree()))
    assert not review.may_emit(Reviewed)
    assert not review.may_emit(None)


def test_states_compare_by_value() -> None:
    assert review == StateRef("review", emits=(Reviewed, Submitted))
    assert hash(StateRef[Never]("x")) == hash(StateRef("x", emits=()))


def test_the_schema_of_an_outcome_has_a_branch_for_each_event() -> None:
    first, second = review.outcome_schema()["oneOf"]
    assert first["properties"]["event"] == {"const": "reviewed"}
    assert first["properties"]["payload"]["required"] == ["approved"]
    assert (first["required"], first["additionalProperties"]) == (["event", "payload"], False)
    assert second == {
        "type": "object",
        "properties": {"event": {"const": "submitted"}},
        "required": ["event"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("state", "said"),
    [(StateRef[Never]("x"), "no event"), (StateRef("x", emits=(Grown,)), "refers to itself")],
)
def test_some_states_have_no_schema(state: StateRef[Any], said: str) -> None:
    with pytest.raises(OutcomeError, match=said):
        state.outcome_schema()


def test_an_outcome_is_made_from_json() -> None:
    assert review.outcome({"event": "reviewed", "payload": {"approved": "yes"}}) == Reviewed(
        Verdict(approved=True)
    )
    assert review.outcome({"event": "submitted"}) == Submitted()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "an object with 'event' and 'payload', not int"),
        ({}, "the outcome has the event None"),
        ({"event": "grown"}, "may emit 'reviewed', 'submitted'"),
        ({"event": "reviewed"}, "does not fit Verdict: approved: Field required"),
        ({"event": "submitted", "payload": {}}, "has no payload"),
        ({"event": "submitted", "more": 1}, "not 'more'"),
    ],
)
def test_what_is_no_outcome_is_refused_with_a_sentence(given: Any, said: str) -> None:
    with pytest.raises(OutcomeError, match=said):
        review.outcome(given)


def test_marking_returns_the_function_itself() -> None:
    def routine(ctx: Context[Any]) -> Reviewed | None: ...

    assert on_state(review, isolation="process", timeout="2m", version=2)(routine) is routine
    mark = mark_of(routine)
    assert mark is not None
    assert (mark.state, mark.isolation, mark.timeout_s, mark.version) == (review, "process", 120.0, 2)


def test_a_function_has_one_state() -> None:
    """The published package forgets the first one without a word."""

    @on_state(review)
    def routine(ctx: Context[Any]) -> None: ...

    with pytest.raises(TypeError, match="is the routine of 'review' already"):
        on_state(StateRef("other", emits=(Reviewed, Submitted)))(routine)


def test_a_wrapper_that_copies_attributes_can_be_marked_for_another_state() -> None:
    @on_state(review)
    def routine(ctx: Context[Any]) -> None: ...

    @functools.wraps(routine)
    def wrapper(ctx: Context[Any]) -> None: ...

    on_state(StateRef("other", emits=(Submitted,)))(wrapper)
    assert [mark.state.name for each in (routine, wrapper) if (mark := mark_of(each))] == ["review", "other"]


@pytest.mark.parametrize("given", [len, "x", 3, type("Routine", (), {})])
def test_what_is_no_function_cannot_be_marked(given: Any) -> None:
    with pytest.raises(TypeError, match="a mark goes on a function"):
        on_state(review)(given)


@pytest.mark.parametrize("state", ["review", None, Submitted, test_states_compare_by_value])
def test_only_a_state_can_be_marked_with(state: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a state of contract\.states"):
        on_state(state)


@pytest.mark.parametrize(
    "given", [{"isolation": "vm"}, {"version": 0}, {"version": True}, {"timeout": "soon"}, {"timeout": 0}]
)
def test_an_argument_out_of_bounds_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        on_state(review, **given)


@pytest.mark.parametrize(
    ("given", "seconds"), [(1.5, 1.5), ("30s", 30), ("2m", 120), ("1h", 3_600), ("1d", 86_400)]
)
def test_durations_are_seconds_or_text(given: Any, seconds: float) -> None:
    assert duration_s(given, "timeout") == seconds


def test_nothing_that_is_lazy_is_woken_by_looking_for_a_mark() -> None:
    class Lazy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    assert mark_of(Lazy()) is None
    assert mark_of(asyncio) is None
    assert mark_of(3) is None


def test_the_context_model_is_read_from_the_annotation() -> None:
    def typed(ctx: Context[Verdict]) -> None: ...
    def bare(ctx) -> None: ...  # type: ignore[no-untyped-def]
    def open_(ctx: Context[Any]) -> None: ...
    def broken(ctx: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert [context_model(each) for each in (typed, bare, open_, broken)] == [Verdict, None, None, None]
