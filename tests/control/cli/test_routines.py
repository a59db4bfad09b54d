"""The commands ``task start`` and ``task wait`` against a real control plane."""

from __future__ import annotations

import json

from control.cli.conftest import Ask, Live

HOLDER = {"supervisor": "sup", "instance": "i1"}


def run_one(live: Live, routine: str, **outcome: object) -> None:
    """Claim a task of a routine, and report its outcome."""
    body = {**HOLDER, "states": [], "routines": {routine: [1]}, "request": live.name()}
    grant = live.http.post("/tasks/claim", json=body).json()
    live.report(grant["task"], attempt=1, instance="i1", **outcome)


def test_a_routine_is_started_once_for_a_key(live: Live, ask: Ask) -> None:
    started = [ask("task", "start", "once", '{"n": 1}', "--idempotency-key", "k", "--json") for _ in range(2)]
    tasks = {json.loads(out)["task"] for _, out, _ in started}
    code, _, err = ask("task", "start", "once", "2", "--idempotency-key", "k")
    assert (len(tasks), code) == (1, 76)
    assert "key_reused" in err


def test_the_result_is_printed_as_it_came(live: Live, ask: Ask) -> None:
    """BH-041."""
    _, out, _ = ask("task", "start", "good", "--json")
    run_one(live, "good", kind="returned", result={"n": 1e21, "big": 2**70})
    code, said, _ = ask("task", "wait", str(json.loads(out)["task"]))
    assert (code, json.loads(said)) == (0, {"n": 1e21, "big": 2**70})


def test_a_failure_is_an_exit_code(live: Live, ask: Ask) -> None:
    _, out, _ = ask("task", "start", "bad", "--json")
    run_one(live, "bad", kind="failed", error="boom")
    code, said, _ = ask("task", "wait", str(json.loads(out)["task"]))
    assert (code, "failed:exception" in said, "boom" in said) == (1, True, True)


def test_lists_show_routines_beside_states(live: Live, ask: Ask) -> None:
    _, out, _ = ask("task", "start", "listed", "--json")
    task = json.loads(out)["task"]
    assert ask("task", "list")[0] == 0
    assert ask("task", "show", str(task))[1].startswith(f"task {task}: listed, pending\n")


def test_show_tells_how_a_routine_ended(live: Live, ask: Ask) -> None:
    for routine, outcome, told in (
        ("well", {"kind": "returned", "result": {"n": 2**70}}, 'result: {"n": 1180591620717411303424}'),
        ("ill", {"kind": "failed", "error": "ValueError: boom"}, "error: ValueError: boom"),
    ):
        _, out, _ = ask("task", "start", routine, "--json")
        run_one(live, routine, **outcome)
        assert ask("task", "show", str(json.loads(out)["task"]))[1].splitlines()[-1] == told


def test_an_input_that_is_no_json_is_refused_here(live: Live, ask: Ask) -> None:
    code, _, err = ask("task", "start", "x", "{")
    assert (code, "no JSON" in err) == (64, True)


def test_a_routine_asks_like_a_state(live: Live, ask: Ask) -> None:
    """A question of a task without a token is listed, shown and answered."""
    _, out, _ = ask("task", "start", "asking", "--json")
    task = json.loads(out)["task"]
    body = {**HOLDER, "states": [], "routines": {"asking": [1]}, "request": live.name()}
    assert live.http.post("/tasks/claim", json=body).json()["task"] == task
    decided: dict[str, object] = {"run": "r", "node": None, "visited": [], "bindings": {}}
    asked = {"key": "go", "occurrence": 1, "data": 1, "ttl_s": 600, "locked_decisions": decided}
    made = live.http.post(f"/tasks/{task}/questions", json={**HOLDER, "attempt": 1, **asked})
    question = str(made.json()["question"])
    assert "asking" in ask("question", "list")[1]
    assert "asking" in ask("question", "show", question)[1]
    assert ask("question", "answer", question, "true")[0] == 0
