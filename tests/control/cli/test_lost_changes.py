"""`task pause|resume|cancel|retry` where the answer is lost: what the command says is what stands (S1-84)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from control.cli.conftest import Live
from control.cli.test_people import hold, park
from faults import FaultProxy, Rule

from stateous_control.cli.client import Client

KINDS = {"pause": "pause_requested", "resume": "resumed", "cancel": "cancelled", "retry": "created"}


def ready_for(live: Live, ask, verb: str) -> int:
    """Return a task that can be steered so."""
    task = hold(live)[1]
    if verb == "resume":
        ask("task", "pause", str(task))
        park(live, task)
    if verb == "retry":
        ask("task", "cancel", str(task))
    return task


def log_of(live: Live, task: int) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = live.http.get(f"/tasks/{task}/log").json()["entries"]
    return entries


def steered(live: Live, task: int, verb: str) -> list[dict[str, Any]]:
    """Return the lines of the log that such a change leaves."""
    if verb == "retry":
        task = live.http.get(f"/tasks/{task}").json()["retried_as"]
    return [each for each in log_of(live, task) if each["kind"] == KINDS[verb]]


def someone(live: Live, task: int, verb: str) -> None:
    generation = live.http.get(f"/tasks/{task}").json()["generation"]
    body = {"expected_generation": generation, "actor": "ann"}
    assert live.http.post(f"/tasks/{task}/{verb}", json=body).status_code in (200, 201)


@pytest.fixture
def before_the_post(monkeypatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen right before the command's first POST, after it has seen the task."""

    def arrange(happen: Callable[[], object]) -> None:
        original = Client.post

        def post(self: Client, *rest: Any) -> Any:
            monkeypatch.setattr(Client, "post", original)
            happen()
            return original(self, *rest)

        monkeypatch.setattr(Client, "post", post)

    return arrange


@pytest.mark.parametrize("verb", KINDS)
@pytest.mark.parametrize(("times", "is_heard"), [(1, False), (2, False), (1, True)])
def test_a_change_whose_answer_is_lost_is_made_once_and_told(
    live: Live, ask, verb: str, times: int, is_heard: bool
) -> None:
    """The request or what came back is lost; the command finds out, and looks as if nothing had been."""
    task = ready_for(live, ask, verb)
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tasks/{task}/{verb}", times=times, forwards=is_heard))
        code, out, err = ask("task", verb, str(task), "--url", proxy.url)
        assert (code, err) == (0, "")
        assert proxy.times_heard(f"POST /tasks/{task}/{verb}") == (1 if is_heard else times + 1)
    [line] = steered(live, task, verb)
    assert line["data"]["by"] not in ("token", None)
    stands = live.http.get(f"/tasks/{task}").json()
    assert out.startswith(f"task {stands.get('retried_as', task)} of ")


@pytest.mark.parametrize("verb", KINDS)
def test_the_same_change_by_somebody_else_is_told_with_their_name(
    live: Live, ask, before_the_post, verb: str
) -> None:
    task = ready_for(live, ask, verb)
    before_the_post(lambda: someone(live, task, verb))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tasks/{task}/{verb}"))
        code, _, err = ask("task", verb, str(task), "--url", proxy.url)
    assert (code, err) == (0, f"the answer was lost on its way; the {verb} is on record, by ann\n")
    assert len(steered(live, task, verb)) == 1


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_another_change_meanwhile_refuses_this_one(live: Live, ask, before_the_post, verb: str) -> None:
    """S1-96: nothing of it is done, and the command says so; a pause of the token is none of the task."""
    task = ready_for(live, ask, verb)
    token = live.http.get(f"/tasks/{task}").json()["token"]
    before_the_post(lambda: live.http.post(f"/tokens/{token}/pause"))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tasks/{task}/{verb}"))
        code, out, err = ask("task", verb, str(task), "--url", proxy.url)
    assert (code, out) == (76, "")
    assert "refused (stale_generation)" in err
    assert [each for each in steered(live, task, verb) if each["data"].get("by") != "token"] == []


def test_a_retry_by_another_name_does_not_pass_for_ours(live: Live, ask, before_the_post) -> None:
    task = ready_for(live, ask, "retry")
    before_the_post(lambda: someone(live, task, "retry"))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tasks/{task}/retry"))
        code, out, err = ask("task", "retry", str(task), "--token", live.name(), "--url", proxy.url)
    assert (code, out) == (76, "")
    assert "refused (already_retried)" in err


def test_what_cannot_be_found_out_is_said(live: Live, ask, before_the_post) -> None:
    task = ready_for(live, ask, "cancel")
    with FaultProxy(live.url) as proxy:
        before_the_post(lambda: proxy.rules.append(Rule(".* /tasks/", times=99)))
        code, _, err = ask("task", "cancel", str(task), "--url", proxy.url)
    assert code == 69
    assert f"whether the cancel was made is not known: see task log {task}" in err


def test_who_cancelled_a_task_is_on_record(live: Live) -> None:
    task = hold(live)[1]
    someone(live, task, "cancel")
    assert log_of(live, task)[-1]["data"] == {"reason": "cancelled:user", "by": "ann"}
