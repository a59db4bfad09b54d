"""What a routine returns or raises, and the outcome that comes out of a real host (A-18, A-19, S3-28, S3-34)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stateous_contract.limits import CONTEXT_BYTES_MAX
from supervisor.host.child import Child

KINDS = ["coding", "other"]


@pytest.mark.parametrize("state", KINDS)
def test_a_returned_event_is_reported_by_its_name(host: Child, task: int, state: str) -> None:
    """S3-63, S3-64, S3-72."""
    outcome = host.body("return events.coded()", task, state)
    assert (outcome.outcome, outcome.event, outcome.payload, outcome.error) == ("event", "coded", None, None)


@pytest.mark.parametrize("state", KINDS)
def test_none_is_reported_as_waiting(host: Child, task: int, state: str) -> None:
    """S3-31."""
    assert host.body("ctx['a'] = 1", task, state).outcome == "waiting"


def test_a_payload_goes_out_as_its_model_writes_it(host: Child, task: int) -> None:
    outcome = host.body("return events.passed(Result(passed=2))", task, "testing")
    assert json.loads(bytes(outcome.payload or b"")) == {"passed": 2, "score": 0.0}


def test_a_payload_given_as_a_dict_is_checked_against_the_model(host: Child, task: int) -> None:
    """The published supervisor sends no payload at all here."""
    outcome = host.body("return events.passed({'passed': 3})", task, "testing")
    assert json.loads(bytes(outcome.payload or b"")) == {"passed": 3, "score": 0.0}


def test_context_writes_and_timers_go_out_with_the_event(host: Child, task: int) -> None:
    body = "ctx['n'] = 10**20; ctx['f'] = 1.0; ctx.schedule(events.coded, after='30s'); return events.coded()"
    outcome = host.body(body, task)
    assert bytes(outcome.context or b"") == b'{"n":100000000000000000000,"f":1.0}'
    assert [(each.event, each.after) for each in outcome.schedules or []] == [("coded", "30s")]


def test_a_failed_attempt_sends_no_writes_and_no_timers(host: Child, task: int) -> None:
    outcome = host.body("ctx['n'] = 1; ctx.schedule(events.coded, after='30s'); raise ValueError('no')", task)
    assert (outcome.outcome, outcome.error) == ("failed", "ValueError: no")
    assert (outcome.context, outcome.schedules, outcome.event) == (None, None, None)


NOT_ALLOWED = [
    ("return 'coded'", "returned 'coded' (str)"),
    ("return 7", "returned 7 (int)"),
    ("return {}", "returned a value of type dict"),
    ("return events.coded", "returned the class coded, not an event: events.coded(…)"),
    ("return events.passed(Result(passed=1))", "returned the event 'passed', which this state does not emit"),
    ("return asyncio.sleep(0)", "returned a coroutine that nothing awaits"),
    ("return (each for each in ())", "returned a generator"),
    ("class mine(events.coded): pass\nreturn mine()", "an event 'coded' of another class"),
]


@pytest.mark.parametrize("state", KINDS)
@pytest.mark.parametrize(("body", "said"), NOT_ALLOWED)
def test_anything_else_fails_and_says_what_was_returned_and_what_is_allowed(
    host: Child, task: int, state: str, body: str, said: str
) -> None:
    """A-18, S3-34."""
    outcome = host.body(body, task, state)
    assert outcome.outcome == "failed"
    assert said in (outcome.error or "")
    assert "it may return events.coded or None" in (outcome.error or "")


NOT_JSON = [
    ("ctx['a'] = float('nan')", "context['a'] is not JSON: it holds NaN or infinity"),
    ("ctx['a'] = float('inf')", "NaN or infinity"),
    ("ctx['a'] = {1, 2}", "Object of type set"),
    ("ctx['a'] = '\\ud800'", "lone surrogate"),
    ("ctx['a'] = ['\\x00']", "NUL"),
    ("ctx['a'] = 10**5000", "more than 4300 digits"),
    ("a = []; a.append(a); ctx['a'] = a", "it contains itself"),
    ("a = []\nfor _ in range(70): a = [a]\nctx['a'] = a", "nested more than 60 levels"),
    ("a = []\nfor _ in range(100_000): a = [a]\nctx['a'] = a", "nested too deeply"),
]


@pytest.mark.parametrize(("body", "said"), NOT_JSON)
def test_a_context_write_that_is_not_json_fails_where_it_is_made(
    host: Child, task: int, body: str, said: str
) -> None:
    """A-17, A-18."""
    outcome = host.body(f"{body}\nreturn events.coded()", task)
    assert outcome.outcome == "failed"
    assert said in (outcome.error or "")


BAD_PAYLOADS = [
    ("events.passed()", "does not fit Result: passed: Field required"),
    (
        "events.passed({'passed': -1})",
        "does not fit Result: passed: Input should be greater than or equal to 0",
    ),
    ("events.passed('x')", "does not fit Result"),
    ("events.passed(Result(passed=1, score=float('nan')))", "holds NaN or infinity"),
    ("events.passed(Result.model_construct(passed='x'))", "does not fit Result"),
]


@pytest.mark.parametrize(("event", "said"), BAD_PAYLOADS)
def test_a_payload_that_does_not_fit_its_model_fails_before_it_is_sent(
    host: Child, task: int, event: str, said: str
) -> None:
    """A-18."""
    outcome = host.body(f"return {event}", task, "testing")
    assert outcome.outcome == "failed"
    assert said in (outcome.error or "")


def test_a_payload_of_an_event_without_one_fails(host: Child, task: int) -> None:
    outcome = host.body("return events.coded(Result(passed=1))", task)
    assert "the event 'coded' has no payload" in (outcome.error or "")


def test_an_instance_of_a_second_import_of_the_contract_still_fits(host: Child, task: int) -> None:
    body = "class Result2(contract.BaseModel):\n    passed: int\nreturn events.passed(Result2(passed=4))"
    assert host.body(body, task, "testing").outcome == "event"


@pytest.mark.parametrize("megabytes", [1.1, 5, 20])
def test_an_outcome_above_the_limit_fails_with_size_and_limit(
    host: Child, task: int, megabytes: float
) -> None:
    """A-39, BH-040."""
    outcome = host.body(f"ctx['big'] = 'x' * int({megabytes} * 2**20)\nreturn events.coded()", task)
    assert outcome.outcome == "failed"
    assert "of them the context; at most 1,048,576 are allowed" in (outcome.error or "")
    assert outcome.context is None


def test_an_outcome_below_the_limit_is_sent(host: Child, task: int) -> None:
    outcome = host.body("ctx['big'] = 'x' * int(0.9 * 2**20)\nreturn events.coded()", task)
    assert (outcome.outcome, len(bytes(outcome.context or b""))) == ("event", int(0.9 * 2**20) + 10)


def test_a_context_that_would_grow_past_its_limit_fails_with_size_and_limit(host: Child, task: int) -> None:
    """BH-040: each outcome is small enough, and the token's context is not."""
    body = "ctx['more'] = 'x' * 900_000\nreturn events.coded()"
    given = {"title": "a", "body": body, "blob": "x" * (CONTEXT_BYTES_MAX - 800_000)}
    outcome = host.result(task, context=given)
    assert outcome.outcome == "failed"
    assert "the token's context would be 7,440,1" in (outcome.error or "")
    assert f"at most {CONTEXT_BYTES_MAX:,} are allowed" in (outcome.error or "")


def test_a_context_counts_with_what_was_written_over(host: Child, task: int) -> None:
    body = "ctx['blob'] = 'ü'\nctx['more'] = 'x' * 900_000\nreturn events.coded()"
    given = {"title": "a", "body": body, "blob": "x" * (CONTEXT_BYTES_MAX + 100_000)}
    assert host.result(task, context=given).event == "coded"


RAISED: list[tuple[str, Any]] = [
    ("raise SystemExit(3)", "SystemExit: 3"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("raise GeneratorExit", "GeneratorExit"),
    ("sys.exit()", "SystemExit"),
    ("raise asyncio.CancelledError", "CancelledError"),
    ("class Local(BaseException): pass\nraise Local('here')", "Local: here"),
    ("{}['x']", "KeyError: 'x'"),
]


@pytest.mark.parametrize("state", KINDS)
@pytest.mark.parametrize(("body", "text"), RAISED)
def test_whatever_is_raised_is_a_failed_attempt(
    host: Child, task: int, state: str, body: str, text: str
) -> None:
    """A-19, S3-33."""
    outcome = host.body(body, task, state)
    assert (outcome.outcome, outcome.error) == ("failed", text)


@pytest.mark.parametrize("state", KINDS)
@pytest.mark.parametrize("body", ["raise StopIteration", "next(iter([]))"])
def test_a_bare_stop_iteration_is_a_failed_attempt(host: Child, task: int, state: str, body: str) -> None:
    """BH-024."""
    outcome = host.body(body, task, state)
    assert outcome.outcome == "failed"
    assert "StopIteration" in (outcome.error or "")


def test_the_traceback_goes_to_the_log_and_not_to_the_report(host: Child, task: int) -> None:
    """A-19."""
    outcome = host.body("raise ValueError('no')", task)
    assert outcome.error == "ValueError: no"
    assert "bodies.py" in (outcome.traceback or "")
    assert "runner.py" not in (outcome.traceback or "")


@pytest.mark.parametrize("state", KINDS)
def test_an_exception_whose_text_hangs_is_reported_while_others_run(
    host: Child, task: int, state: str
) -> None:
    """BH-024: the loop does not wait for it either."""
    body = "class Hangs(Exception):\n    def __str__(self): time.sleep(3600)\nraise Hangs"
    host.run(task, state, context={"body": body})
    quick = host.body("return events.coded()", task + 1_000_000)
    assert quick.outcome == "event"
    outcome = host.outcome(task)
    assert outcome.error == "Hangs: its text was not to be had within 2 s"


def test_a_grant_for_an_unknown_state_fails(host: Child, task: int) -> None:
    outcome = host.result(task, "nowhere")
    assert (outcome.outcome, outcome.error) == ("failed", "there is no routine for the state 'nowhere'")


def test_a_grant_that_cannot_be_read_fails_its_attempt(host: Child, task: int) -> None:
    """A-53."""
    outcome = host.result(task, "coding", visit="one")
    assert outcome.outcome == "failed"
    assert "the grant cannot be read" in (outcome.error or "")
