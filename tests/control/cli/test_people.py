"""The commands ``question …`` and ``task …`` against a real control plane: what they print, and how they end."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from control.cli.conftest import COMMAND, Ask, Live, environment, lines
from faults import FaultProxy, Rule

from stateous_control.cli import questions

DECIDED: dict[str, object] = {"run": "r", "node": None, "visited": [], "bindings": {}}
HOLDER = {"supervisor": "sup", "instance": "i1"}


def hold(live: Live, path: str = "plain") -> tuple[str, int]:
    """Start a token and claim its task as an instance; return both."""
    name = live.start(path)
    while True:
        grant = live.http.post(
            "/tasks/claim", json={**HOLDER, "states": [path], "request": live.name()}
        ).json()
        if grant["token"] == name:
            return name, grant["task"]


def ask_people(live: Live, path: str = "plain", **more: object) -> tuple[str, int, int]:
    name, task = hold(live, path)
    body = {
        "attempt": 1,
        "key": "go",
        "occurrence": 1,
        "data": {"n": 1.0},
        "ttl_s": 600,
        "locked_decisions": DECIDED,
    }
    response = live.http.post(f"/tasks/{task}/questions", json={**HOLDER, **body, **more})
    assert response.status_code == 201, response.text
    return name, task, response.json()["question"]


def park(live: Live, task: int) -> None:
    body = {**HOLDER, "attempt": 1, "wait": {"kind": "pause"}, "locked_decisions": DECIDED}
    assert live.http.post(f"/tasks/{task}/park", json=body).json()["status"] == "parked"


def test_open_questions_are_listed_with_what_they_are_about(live: Live, ask: Ask) -> None:
    """DX-07."""
    name, task, question = ask_people(live)
    code, out, _ = ask("question", "list", "--token", name)
    assert code == 0
    assert lines(out)[1].split()[:6] == [str(question), str(task), name, "plain", "go", "pending"]


def test_a_list_that_is_cut_says_so_in_words(live: Live, ask: Ask) -> None:
    """BH-056: showing 1 of 2, and how to go on."""
    for _ in range(2):
        ask_people(live)
    code, out, err = ask("question", "list", "--limit", "1")
    assert (code, len(lines(out))) == (0, 2)
    assert lines(err)[0].startswith("showing 1 of ")
    assert lines(err)[1].startswith("the next ones: --cursor ")


def test_an_answer_is_given_with_the_generation_of_the_moment(live: Live, ask: Ask) -> None:
    _, task, question = ask_people(live)
    code, out, _ = ask("question", "answer", str(question), '{"go": 12345678901234567890123.50}')
    assert code == 0
    assert (
        out.endswith(': {"go":12345678901234567890123.50}\n') or '{"go": 12345678901234567890123.50}' in out
    )
    assert "12345678901234567890123.50" in live.http.get(f"/questions/{question}").text
    assert (
        live.http.get(f"/tasks/{task}").json()["watchdog_stop_reason"] == "resuming:awaiting_user_answer:go"
    )


@pytest.mark.parametrize(
    ("typed", "stored"), [(("yes",), "yes"), (("true",), True), (("--text", "true"), "true"), (("7",), 7)]
)
def test_what_is_no_json_is_a_text(live: Live, ask: Ask, typed: tuple[str, ...], stored: object) -> None:
    question = ask_people(live)[2]
    assert ask("question", "answer", str(question), *typed)[0] == 0
    assert live.http.get(f"/questions/{question}").json()["answer"] == stored


def test_half_json_is_a_wrong_command_line(live: Live, ask: Ask) -> None:
    question = ask_people(live)[2]
    assert ask("question", "answer", str(question), '{"go": ')[0] == 64


def test_a_second_answer_is_refused_and_says_who_was_first(live: Live, ask: Ask) -> None:
    """S1-84."""
    question = str(ask_people(live)[2])
    ask("question", "answer", question, "yes")
    code, out, err = ask("question", "answer", question, "no")
    assert (code, out) == (76, "")
    assert "refused (already_answered): question" in err
    assert "was answered by" in err


@pytest.mark.parametrize("is_heard", [False, True], ids=["request lost", "answer lost"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_answer_of_a_person_is_stored_once(live: Live, ask: Ask, times: int, is_heard: bool) -> None:
    """S1-58, S1-84: the request or what came back is lost; the command finds out, and nobody has to guess."""
    question = ask_people(live)[2]
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(r"POST /questions/", times=times, forwards=is_heard))
        code, out, err = ask("question", "answer", str(question), '{"n": 1.0}', "--url", proxy.url)
        assert (code, err) == (0, "")
        assert out.startswith(f"question {question} answered by ")
        assert proxy.times_heard("POST /questions/") == (1 if is_heard else times + 1)
    log = live.http.get(f"/tasks/{live.http.get(f'/questions/{question}').json()['task']}/log").json()
    assert [each["kind"] for each in log["entries"]].count("question_answered") == 1


def test_a_lost_answer_does_not_pass_for_anothers(
    live: Live, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-84: somebody else has answered meanwhile."""
    question = ask_people(live)[2]

    def another() -> str:
        body = {"answer": "no", "expected_generation": 3, "actor": "another"}
        live.http.post(f"/questions/{question}/answer", json=body)
        return "me"

    monkeypatch.setattr(questions, "actor", another)
    with FaultProxy(live.url) as proxy:
        proxy.rules.append(Rule(r"POST /questions/"))
        code, out, err = ask("question", "answer", str(question), "yes", "--url", proxy.url)
    assert (code, out) == (76, "")
    assert "refused (already_answered)" in err


def test_what_cannot_be_found_out_is_said(live: Live, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-84: the answer is lost, and nobody can be asked."""
    question = ask_people(live)[2]
    with FaultProxy(live.url) as proxy:

        def cut() -> str:
            proxy.rules.append(Rule(r".* /questions/", times=99))
            return "me"

        monkeypatch.setattr(questions, "actor", cut)
        code, _, err = ask("question", "answer", str(question), "yes", "--url", proxy.url)
    assert code == 69
    assert f"whether the answer is stored is not known: see question show {question}" in err


def test_an_answer_that_does_not_fit_is_refused_with_the_choices(live: Live, ask: Ask) -> None:
    question = str(ask_people(live, choices=["yes", "no"])[2])
    code, _, err = ask("question", "answer", question, "perhaps")
    assert code == 76
    assert 'the answer must be one of: "yes", "no"' in err


def test_a_question_is_shown_with_its_digits(live: Live, ask: Ask) -> None:
    question = str(ask_people(live, choices=[1970670598291982290, 1.0])[2])
    out = ask("question", "show", question)[1]
    assert '{"n":1.0}' in out.replace(" ", "")
    assert "1970670598291982290" in out


def test_watch_shows_questions_as_they_come_until_ctrl_c(live: Live) -> None:
    first = ask_people(live)[2]
    command = [COMMAND, "question", "watch", "--json", "--url", live.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            seen = set()
            while first not in seen:
                seen.add(json.loads(process.stdout.readline())["question"])
            second = ask_people(live)[2]
            while second not in seen:
                seen.add(json.loads(process.stdout.readline())["question"])
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == 130
        finally:
            process.kill()


def test_a_pause_says_that_it_comes_after_the_current_step(live: Live, ask: Ask) -> None:
    """S1-69."""
    name, task = hold(live)
    code, out, _ = ask("task", "pause", str(task))
    assert (code, out) == (0, f"task {task} of {name}: plain, running, pausing after the current step\n")
    assert "running  pausing after the current step" in ask("task", "list", "--token", name)[1]


def test_a_tokens_pause_says_so_while_a_worker_has_its_task(live: Live, ask: Ask) -> None:
    """S1-69."""
    name, _ = hold(live)
    code, out, _ = ask("token", "pause", name)
    assert (code, out) == (0, f"{name}: plain, paused, pausing after the current step\n")


def test_a_task_that_was_given_back_shows_how_often(live: Live, ask: Ask) -> None:
    _, task = hold(live)
    body = {"kind": "released", "reason": "drain", "attempt": 1, **HOLDER}
    assert live.http.post(f"/tasks/{task}/report", json=body).status_code == 200
    said = lines(ask("task", "show", str(task))[1])
    assert "given back 1 times, and 0 times because a host or agent died" in said
    assert live.http.get(f"/tasks/{task}").json()["given_back"] == 1


def test_a_paused_task_is_resumed(live: Live, ask: Ask) -> None:
    name, task = hold(live)
    ask("task", "pause", str(task))
    park(live, task)
    assert (
        ask("task", "show", str(task))[1].splitlines()[0]
        == f"task {task} of {name}: plain, parked (user_paused)"
    )
    code, out, _ = ask("task", "resume", str(task))
    assert (code, out) == (0, f"task {task} of {name}: plain, parked (resuming:user_paused)\n")
    assert ask("task", "resume", str(task))[0] == 76


def test_a_generation_that_is_named_guards_the_change(live: Live, ask: Ask) -> None:
    """S1-95, S1-100."""
    task = hold(live)[1]
    code, _, err = ask("task", "cancel", str(task), "--generation", "1")
    assert code == 76
    assert "stale_generation" in err


def test_a_cancelled_task_is_retried_as_a_new_one(live: Live, ask: Ask) -> None:
    name, task = hold(live)
    assert (
        ask("task", "cancel", str(task))[1] == f"task {task} of {name}: plain, cancelled (cancelled:user)\n"
    )
    code, out, _ = ask("task", "retry", str(task), "--json")
    fresh = json.loads(out)
    assert (code, fresh["retried_from"], fresh["token"]) == (0, task, f"{name}.retry-{task}")
    assert ask("task", "retry", str(task))[0] == 76


def test_a_log_is_told_in_order_and_cut_in_words(live: Live, ask: Ask) -> None:
    """S1-112, BH-056."""
    task = ask_people(live)[1]
    code, out, err = ask("task", "log", str(task))
    assert code == 0
    assert [line.split()[2] for line in lines(out)] == ["created", "claimed", "question_asked"]
    assert err == ""
    code, out, err = ask("task", "log", str(task), "--limit", "1")
    assert lines(err)[0] == "showing 1 of 3"
    assert lines(out)[0].split()[2] == "question_asked"


def test_tasks_are_listed_by_what_they_are(live: Live, ask: Ask) -> None:
    name, task, _ = ask_people(live)
    out = ask("task", "list", "--is", "parked", "--token", name)[1]
    assert lines(out)[1].split()[:5] == [str(task), name, "plain", "parked", "awaiting_user_answer:go"]
    assert ask("task", "list", "--is", "asleep")[0] == 76


def test_what_is_not_there_is_refused(ask: Ask) -> None:
    for command in (["task", "show"], ["task", "log"], ["task", "pause"], ["question", "show"]):
        assert ask(*command, "999999999")[0] == 76


def test_the_history_tells_of_questions_in_words(live: Live, ask: Ask) -> None:
    name, task, question = ask_people(live)
    ask("question", "answer", str(question), "yes")
    out = ask("token", "history", name)[1]
    assert f"question {question} asked: go" in out
    assert f"question {question} answered by " in out
    assert f"task {task} goes on: resuming:awaiting_user_answer:go" in out


NUMBERS = (
    "[1970670598291982290,9223372036854775807,0.1,0.30000000000000004,1e21,1.0,1,12345678901234567890123.50]"
)


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["for people", "for programs"])
def test_numbers_have_the_same_digits_wherever_they_are_shown(
    live: Live, ask: Ask, more: tuple[str, ...]
) -> None:
    """BH-041: in a context, an answer, and a history, which tells people no payload."""
    token, question = live.name(), str(ask_people(live)[2])
    assert ask("token", "start", token, f'{{"numbers": {NUMBERS}, "path": "plain"}}')[0] == 0
    assert ask("question", "answer", question, NUMBERS)[0] == 0
    assert ask("token", "fire", token, "flagged", f'{{"level": 1, "numbers": {NUMBERS}}}')[0] == 0
    commands = [("token", "show", token), ("question", "show", question)]
    for command in commands + [("token", "history", token)] * bool(more):
        shown = "".join(ask(*command, *more)[1].split())
        assert NUMBERS in shown, (command, shown)
