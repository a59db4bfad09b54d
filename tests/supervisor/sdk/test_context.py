"""`ctx` as routines see it (A-17, S3-68), without a host."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from pydantic import BaseModel
from stateous_contract.messages import EnteredBy
from supervisor.sdk.ports import Recorder, grant

from stateous_supervisor import AsyncContext, AttemptLost, Context, Occurrence


class Ticket(BaseModel):
    title: str
    size: int = 1


class Plain(Occurrence[None]):
    name = "plain"


class Sized(Occurrence[Ticket]):
    name = "sized"


@pytest.fixture
def port() -> Recorder:
    return Recorder()


def make(port: Recorder, context: Any = None, **given: Any) -> Context[Ticket]:
    return Context(grant(context, **given), port)


def test_the_grant_is_told(port: Recorder) -> None:
    ctx = make(port)
    assert (ctx.token, ctx.task, ctx.state, ctx.visit, ctx.attempt) == ("T-1", 7, "coding", 2, 3)
    assert (ctx.lease, ctx.lost, ctx.entered_by) == (12.5, False, None)


def test_the_event_that_came_before_has_name_payload_and_error(port: Recorder) -> None:
    came = make(port, entered_by=EnteredBy(name="failed", payload=Raw(b'{"n":[1]}'))).entered_by
    assert came is not None
    assert (came.name, came.payload, came.error) == ("failed", {"n": [1]}, None)
    erred = make(port, entered_by=EnteredBy(name="error", error="it broke")).entered_by
    assert erred is not None
    assert (erred.payload, erred.error) == (None, "it broke")


def test_the_context_is_a_mapping_of_copies(port: Recorder) -> None:
    ctx = make(port, {"list": [1], "n": 1.0})
    ctx["list"].append(2)
    assert ctx["list"] == [1]
    assert type(ctx["n"]) is float
    assert ("list" in ctx, "x" in ctx, len(ctx), list(ctx), ctx.get("x"), ctx.get("x", 5)) == (
        True,
        False,
        2,
        ["list", "n"],
        None,
        5,
    )
    with pytest.raises(KeyError):
        ctx["x"]


def test_a_write_is_read_back_as_json_has_it_and_goes_out(port: Recorder) -> None:
    ctx = make(port, {"a": 1})
    given = {1: (2, 3)}
    ctx["a"] = given
    given[1] = (9,)  # type: ignore[assignment]
    assert ctx["a"] == {"1": [2, 3]}
    assert ctx.writes() == {"a": {"1": [2, 3]}}
    assert ctx.outgoing_context() == '{"a":{"1":[2,3]}}'
    assert port.said == []


def test_nothing_written_is_nothing_to_send(port: Recorder) -> None:
    ctx = make(port, {"a": 1})
    assert (ctx.writes(), ctx.outgoing_context(), ctx.schedules(), ctx.outgoing_schedules()) == (
        {},
        None,
        [],
        None,
    )


def test_update_sets_all_or_nothing(port: Recorder) -> None:
    ctx = make(port, {"a": 1})
    with pytest.raises(TypeError, match="context\\['c'\\]"):
        ctx.update({"b": 2}, c={1})
    assert ctx.writes() == {}
    ctx.update({"b": 2}, c=3)
    assert ctx.writes() == {"b": 2, "c": 3}


@pytest.mark.parametrize("value", [float("nan"), {1}, object(), Ticket(title="x"), "\ud800", "\x00"])
def test_what_is_not_json_is_refused_when_it_is_written(port: Recorder, value: Any) -> None:
    ctx = make(port)
    with pytest.raises(TypeError, match="context\\['k'\\]"):
        ctx["k"] = value
    assert ctx.writes() == {}


def test_a_key_is_text_and_cannot_be_deleted(port: Recorder) -> None:
    ctx = make(port, {"a": 1})
    with pytest.raises(TypeError, match="a context key is text, not int"):
        ctx[1] = 1  # type: ignore[index]
    with pytest.raises(TypeError, match="cannot be deleted"):
        del ctx["a"]


def test_the_context_as_the_model_of_the_annotation_has_what_was_written(port: Recorder) -> None:
    port.model = Ticket
    ctx = make(port, {"title": "a", "size": 2})
    ctx["size"] = 5
    assert ctx.model() == Ticket(title="a", size=5)
    ctx["size"] = "many"
    with pytest.raises(TypeError, match="the context does not fit Ticket: size: "):
        ctx.model()


def test_a_routine_without_a_model_is_told_how_to_name_one(port: Recorder) -> None:
    with pytest.raises(TypeError, match="write ctx: Context\\[Ticket\\]"):
        make(port).model()


def test_notes_are_stripped_and_sent_at_once(port: Recorder) -> None:
    ctx = make(port)
    ctx.note("  one \n")
    ctx.note("   ")
    ctx.note("x" * 500 + " ")
    assert port.said == ["one", "x" * 500]


@pytest.mark.parametrize("text", ["x" * 501, "\ud800", "a\x00b"])
def test_a_note_that_nobody_takes_is_refused(port: Recorder, text: str) -> None:
    with pytest.raises(ValueError, match="note"):
        make(port).note(text)
    assert port.said == []


def test_timers_are_asked_for_by_class_or_occurrence(port: Recorder) -> None:
    ctx = make(port)
    ctx.schedule(Plain, after="30s")
    ctx.schedule(Sized(Ticket(title="a")), after="2h")
    assert ctx.schedules() == [
        {"event": "plain", "after": "30s"},
        {"event": "sized", "after": "2h", "payload": {"title": "a", "size": 1}},
    ]


@pytest.mark.parametrize("after", ["", "30", "0s", "1.5h", "-1s", "30 s", "9999999d", 30, None])
def test_a_time_that_is_none_is_refused(port: Recorder, after: Any) -> None:
    ctx = make(port)
    with pytest.raises(ValueError, match="after is"):
        ctx.schedule(Plain, after=after)
    assert ctx.schedules() == []


def test_a_timer_needs_an_event_and_its_payload(port: Recorder) -> None:
    ctx = make(port)
    with pytest.raises(ValueError, match=r"has a payload; schedule an occurrence of it: events.sized\(…\)"):
        ctx.schedule(Sized, after="1s")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes an event"):
        ctx.schedule("plain", after="1s")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not fit Ticket"):
        ctx.schedule(Sized({"size": 1}), after="1s")  # type: ignore[call-overload]


def test_memory_is_a_mapping_whose_writes_go_out_at_once(port: Recorder) -> None:
    """S3-77."""
    memory = make(port, memory={"a": [1], "b": 2}).memory
    memory["a"].append(2)
    assert (memory["a"], "b" in memory, len(memory), sorted(memory)) == ([1], True, 2, ["a", "b"])
    memory["c"] = {"x": (1,)}
    memory.update(d=4)
    assert memory.pop("a") == [1]
    assert memory["c"] == {"x": [1]}
    assert port.said == [("c", b'{"x":[1]}'), ("d", b"4"), ("a", b"null")]


@pytest.mark.parametrize(
    ("key", "value", "error", "said"),
    [
        ("", 1, ValueError, "1 to 128 characters"),
        ("k" * 129, 1, ValueError, "1 to 128 characters"),
        (5, 1, ValueError, "1 to 128 characters"),
        ("k", None, ValueError, "use del to forget a key"),
        ("k", {1}, TypeError, "memory\\['k'\\] is not JSON"),
        ("k\x00", 1, TypeError, "NUL"),
        ("k", "x" * 2**20, ValueError, "at most 1,044,480 are allowed"),
    ],
)
def test_memory_refuses_what_the_control_plane_would(
    port: Recorder, key: Any, value: Any, error: type[Exception], said: str
) -> None:
    memory = make(port).memory
    with pytest.raises(error, match=said):
        memory[key] = value
    assert (port.said, len(memory)) == ([], 0)


def test_forgetting_what_is_not_there_is_a_key_error_and_says_nothing(port: Recorder) -> None:
    with pytest.raises(KeyError):
        del make(port).memory["x"]
    assert port.said == []


def test_memory_that_could_not_be_sent_is_not_kept(port: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_key: str, _value: bytes) -> None:
        raise OSError("gone")

    monkeypatch.setattr(port, "remember", gone)
    memory = make(port).memory
    with pytest.raises(OSError, match="gone"):
        memory["a"] = 1
    assert "a" not in memory


def test_check_raises_what_except_exception_does_not_catch(port: Recorder) -> None:
    ctx: AsyncContext[Any] = AsyncContext(grant(), port)
    ctx.check()
    port.cause = "lease_ended"
    assert ctx.lost
    with pytest.raises(AttemptLost, match="attempt 3 of task 7 is lost: lease_ended"):
        ctx.check()
    assert not issubclass(AttemptLost, Exception)
