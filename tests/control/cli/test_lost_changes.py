"""`task` and `token` commands whose answer is lost: what the command says is what stands (S1-84)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from control.cli.conftest import Ask, Live
from control.cli.test_people import hold, park
from faults import FaultProxy, Rule

from stateous_control.cli.client import Client

KINDS = {"pause": "pause_requested", "resume": "resumed", "cancel": "cancelled", "retry": "created"}

Before = Callable[[Callable[[], object]], None]


def ready_for(live: Live, ask: Ask, verb: str) -> int:
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
def before_the_post(monkeypatch: pytest.MonkeyPatch) -> Before:
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
    live: Live, ask: Ask, verb: str, times: int, is_heard: bool
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
    live: Live, ask: Ask, before_the_post: Before, verb: str
) -> None:
    task = ready_for(live, ask, verb)
    before_the_post(lambda: someone(live, task, verb))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tasks/{task}/{verb}"))
        code, _, err = ask("task", verb, str(task), "--url", proxy.url)
    assert (code, err) == (0, f"the answer was lost on its way; the {verb} is on record, by ann\n")
    assert len(steered(live, task, verb)) == 1


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_another_change_meanwhile_refuses_this_one(
    live: Live, ask: Ask, before_the_post: Before, verb: str
) -> None:
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


def test_a_retry_by_another_name_does_not_pass_for_ours(
    live: Live, ask: Ask, before_the_post: Before
) -> None:
    task = ready_for(live, ask, "retry")
    before_the_post(lambda: someone(live, task, "retry"))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tasks/{task}/retry"))
        code, out, err = ask("task", "retry", str(task), "--token", live.name(), "--url", proxy.url)
    assert (code, out) == (76, "")
    assert "refused (already_retried)" in err


def test_what_cannot_be_found_out_is_said(live: Live, ask: Ask, before_the_post: Before) -> None:
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


# Tokens.


TURNED = {
    "pause": ("paused", "paused"),
    "resume": ("resumed", "active"),
    "cancel": ("cancelled", "cancelled"),
}


def turnable(live: Live, ask: Ask, verb: str) -> str:
    """Return a token that was paused and resumed before, and can be steered so."""
    name = live.start()
    for earlier in ("pause", "resume", *(["pause"] if verb == "resume" else [])):
        ask("token", earlier, name)
    return name


def history_of(live: Live, name: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in live.http.get(f"/tokens/{name}/history").json() if each["kind"] == kind]


@pytest.mark.parametrize("verb", TURNED)
def test_a_change_of_a_token_whose_answer_is_lost_is_told_as_made(live: Live, ask: Ask, verb: str) -> None:
    name, (kind, status) = turnable(live, ask, verb), TURNED[verb]
    before = len(history_of(live, name, kind))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tokens/{name}/{verb}"))
        told = ask("token", verb, name, "--url", proxy.url)
    remark = f"the answer was lost on its way; the {verb} is on record\n"
    assert told == (0, f"{name}: plain, {status}\n", remark)
    assert len(history_of(live, name, kind)) == before + 1


@pytest.mark.parametrize("verb", TURNED)
def test_a_change_of_a_token_that_was_not_heard_is_told_as_not_on_record(
    live: Live, ask: Ask, verb: str
) -> None:
    """It is not sent again: somebody may have undone it meanwhile, and a token has no generation to tell by."""
    name, (kind, _) = turnable(live, ask, verb), TURNED[verb]
    before = len(history_of(live, name, kind))
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tokens/{name}/{verb}", forwards=False))
        code, out, err = ask("token", verb, name, "--url", proxy.url)
    assert (code, out) == (69, "")
    assert f"the {verb} is not on record so far: see token history {name} before you repeat it\n" in err
    assert len(history_of(live, name, kind)) == before


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("cancel",), ("fire", "noted")], ids=" ".join)
def test_what_became_of_a_token_is_said_to_be_unknown_where_nobody_can_be_asked(
    live: Live, ask: Ask, before_the_post: Before, words: tuple[str, ...]
) -> None:
    name = turnable(live, ask, words[0])
    with FaultProxy(live.url) as proxy:
        before_the_post(lambda: proxy.rules.append(Rule(".* /tokens/", times=99)))
        code, out, err = ask("token", words[0], name, *words[1:], "--url", proxy.url)
    assert (code, out) == (69, "")
    was = "noted was fired" if words[0] == "fire" else f"the {words[0]} was made"
    assert f"whether {was} is not known: see token history {name}\n" in err


@pytest.mark.parametrize("key", [(), ("--key", "k")], ids=["no key", "a key"])
@pytest.mark.parametrize("is_heard", [True, False])
def test_an_event_whose_answer_is_lost_is_fired_once(
    live: Live, ask: Ask, key: tuple[str, ...], is_heard: bool
) -> None:
    """With a key that a person gave, a repeat says that the key was used; without one it looks as if nothing had been."""
    name = live.start()
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tokens/{name}/events/", forwards=is_heard))
        code, out, err = ask("token", "fire", name, "noted", *key, "--url", proxy.url)
    prefix = "duplicate: " if key and is_heard else ""
    assert (code, out, err) == (0, f"{prefix}{name}: plain, completed\n", "")
    fired = [each for each in history_of(live, name, "event_accepted") if each["data"]["event"] == "noted"]
    assert len(fired) == 1


def test_the_document_of_a_repeated_event_is_the_token(live: Live, ask: Ask) -> None:
    name = live.start()
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(f"POST /tokens/{name}/events/"))
        code, out, _ = ask("token", "fire", name, "noted", "--json", "--url", proxy.url)
    assert (code, json.loads(out)) == (0, live.http.get(f"/tokens/{name}").json())


def test_two_events_without_a_key_are_two(live: Live, ask: Ask) -> None:
    name = live.start()
    assert ask("token", "fire", name, "noted")[0] == 0
    assert ask("token", "fire", name, "noted")[0] == 76


@pytest.mark.parametrize("words", [("pause",), ("fire", "noted")], ids=" ".join)
def test_what_was_never_sent_is_just_not_reached(
    live: Live, ask: Ask, before_the_post: Before, words: tuple[str, ...]
) -> None:
    name = live.start()
    with FaultProxy(live.url) as proxy:
        before_the_post(lambda: proxy.__exit__(None, None, None))
        code, _, err = ask("token", words[0], name, *words[1:], "--url", proxy.url)
        proxy.__enter__()
    assert code == 69
    assert "Connection refused" in err
    assert "see token history" not in err


def test_a_token_whose_start_was_heard_is_told_as_if_nothing_had_been(live: Live, ask: Ask) -> None:
    name = live.name()
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule("POST /tokens"))
        told = ask("token", "start", name, '{"path": "plain"}', "--url", proxy.url)
    assert told == (0, f"{name}: plain, active\n", "")


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_routine_whose_start_was_lost_is_started_once(live: Live, ask: Ask, is_heard: bool) -> None:
    routine = f"lost.{live.name().lower()}"
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule("POST /tasks", forwards=is_heard))
        code, out, err = ask("task", "start", routine, "--url", proxy.url)
    assert (code, err) == (0, "")
    page = live.http.get("/tasks", params={"limit": 1000}).json()["entries"]
    [task] = [each["task"] for each in page if each.get("routine") == routine]
    assert out.startswith(f"task {task} is pending")
