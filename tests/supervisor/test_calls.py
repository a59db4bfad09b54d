"""Calls of routines on their way: rows, order, repeats, and what becomes of an attempt that is over."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from fakes import Fault
from msgspec import Raw
from stateous_contract.limits import GRANT_BYTES_MAX
from supervisor.doubles import ScriptedHosts, World, simulate, stay, until

from stateous_supervisor.agent import calls
from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.link.frames import Answer, Call, Cancel, Noted, Outcome, PauseTask

KEY = {"task": 1, "attempt": 1}


def call(kind: str, id: int = 1, **body: Any) -> Call:  # noqa: A002 - the frame's own name
    return Call(id=id, call=kind, body=Raw(json.dumps(body).encode()), **KEY)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("ask", {"key": "go"}, ("POST", "/tasks/1/questions", {"key": "go"})),
        ("checkpoint", {"step": "a"}, ("PUT", "/tasks/1/checkpoints", {"step": "a"})),
        ("pause", {"wait": {"kind": "pause"}}, ("POST", "/tasks/1/park", {"wait": {"kind": "pause"}})),
        ("pause", {}, ("POST", "/tasks/1/park", {})),
        ("diverged", {"step": "a"}, ("POST", "/tasks/1/park", {"step": "a"})),
        (
            "checkpoints",
            {"version": 2, "after": 7},
            ("GET", "/tasks/1/checkpoints?version=2&after=7&limit=1000", None),
        ),
    ],
)
def test_a_call_names_a_row_and_never_a_path(kind: str, body: Any, expected: Any) -> None:
    made = calls.request(kind, 1, Identity("box", "i1"), calls.body_of(call(kind, **body)))

    sent = None if made.body is None else json.loads(made.body)
    whose = {"supervisor": "box", "instance": "i1", "kind": kind, **KEY}
    assert (made.method, made.path) == expected[:2]
    assert sent == (None if expected[2] is None else whose | expected[2])


def test_the_step_that_was_not_come_by_is_read_of_the_call_that_says_so() -> None:
    body = calls.body_of(call("diverged", step="a", occurrence=2))

    assert calls.unmet("diverged", body) == "a#2"
    assert calls.unmet("pause", body) is None


def test_what_is_not_offered_is_named_a_64() -> None:
    assert calls.missing("ask", frozenset({"questions"})) is None
    assert calls.missing("ask", frozenset()) == (
        "ctx.ask needs the feature 'questions', which this control plane does not offer"
    )
    assert "newer" in str(calls.missing("sing", frozenset({"questions"})))


def answers(hosts: ScriptedHosts) -> list[Answer]:
    return [frame for frame in hosts.last.heard if isinstance(frame, Answer)]


def test_a_call_to_a_control_plane_without_the_feature_is_answered_at_once_a_64() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(call("ask", key="go"))
            await until(lambda: answers(hosts))

            (answer,) = answers(hosts)
            assert (answer.status, json.loads(bytes(answer.body))["code"]) == (501, "feature_missing")
            assert world.heard("/tasks/1/questions") == []

    simulate(main, features=("wait", "batch", "release"))


def test_a_call_of_an_attempt_that_is_not_held_is_refused() -> None:
    async def main(world: World) -> None:
        hosts = ScriptedHosts({"plain": stay})
        async with world.agent(hosts):
            await until(lambda: hosts.all)
            hosts.last.say(call("ask", key="go"))
            await until(lambda: answers(hosts))

            assert json.loads(bytes(answers(hosts)[0].body))["code"] == "attempt_over"

    simulate(main, features=("batch", "questions"))


def test_an_answer_that_no_host_could_get_is_refused_with_its_size_a_53() -> None:
    """BH-040: a frame of the link to the host has a limit; the routine hears of it, and the loops go on."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            body = b'{"value":"' + b"x" * GRANT_BYTES_MAX + b'"}'
            world.fake.faults.append(Fault("POST /tasks/1/questions", status=200, body=body))
            hosts.last.say(call("ask", key="go"))
            await until(lambda: answers(hosts))

            (answer,) = answers(hosts)
            told = json.loads(bytes(answer.body))
            assert (answer.status, told["code"]) == (413, "answer_too_large")
            assert f"{len(body):,} bytes" in told["error"]
            assert not world.lines.of("loop.failed")

    simulate(main, features=DURABLE)


DURABLE = ("wait", "batch", "release", "questions", "checkpoints")
PARKED = json.dumps(
    {
        "question": 5,
        "status": "pending",
        "parked": True,
        "generation": 3,
        "expires_at": "2030-01-01T00:00:00Z",
    }
).encode()
QUESTIONS = "POST /tasks/1/questions"


def refusal(code: str) -> bytes:
    return json.dumps({"code": code, "error": "no"}).encode()


def test_a_question_goes_out_behind_the_notes_until_it_is_answered_and_frees_the_slot_s1_48() -> None:
    """A-36, A-37, BH-043: the same question again, and no report for an attempt that parked."""

    async def main(world: World) -> None:
        world.start_tokens(2)
        hosts = ScriptedHosts({"plain": stay})
        world.fake.faults += [
            Fault(QUESTIONS, times=2, closes=True),
            Fault(QUESTIONS, times=2, status=503),
            Fault(QUESTIONS, status=201, body=PARKED),
        ]
        async with world.agent(hosts, tasks=1):
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(Noted(text="built", **KEY), call("ask", id=3, key="go"))
            await until(lambda: answers(hosts))

            (answer,) = answers(hosts)
            assert (answer.id, answer.status, answer.is_parked) == (3, 201, True)
            assert bytes(answer.body) == PARKED
            told = [
                heard for heard in world.fake.heard if heard.path in ("/tasks/messages", "/tasks/1/questions")
            ]
            assert [heard.path for heard in told] == [
                "/tasks/messages",
                *["/tasks/1/questions"] * len(told[1:]),
            ]
            assert len({heard.body for heard in told[1:]}) == 1
            await until(
                lambda: len(hosts.last.scopes) == 2
            )  # the slot is free although the first still unwinds

            hosts.last.say(
                Noted(text="too late", **KEY), Outcome(outcome="parked", is_dropped=True, task=1, attempt=1)
            )
            await until(lambda: world.lines.of("task.finished"))
            (line,) = world.lines.of("task.finished")
            assert (line["outcome"], line["ending"]) == ("parked", "parked")
            assert not [
                heard
                for heard in world.heard("/tasks/messages")
                if b"report" in json.dumps(heard.body).encode()
            ]

    simulate(main, features=DURABLE)


@pytest.mark.parametrize(
    ("status", "body", "ending"), [(201, PARKED, "parked"), (409, refusal("attempt_over"), "lost")]
)
def test_a_heartbeat_that_overtakes_the_answer_waits_for_it(status: int, body: bytes, ending: str) -> None:
    """A-31, S1-45, S1-47: the answer was lost and the task is parked, so a heartbeat names it lost meanwhile."""

    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        lost = b'{"lost":[1],"causes":{"1":"attempt_over"}}'
        beats = Fault("POST /tasks/heartbeat", times=10_000, status=200, body=lost)
        world.fake.faults += [beats, Fault(QUESTIONS, times=10_000, closes=True)]
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(call("ask", key="go"))
            await until(lambda: world.heard("/tasks/1/questions"))
            asked = len(world.heard("/tasks/heartbeat"))
            await until(lambda: len(world.heard("/tasks/heartbeat")) > asked + 1)
            assert (answers(hosts), world.lines.of("lease.lost")) == ([], [])
            world.fake.faults[1:] = [Fault(QUESTIONS, status=status, body=body)]
            await until(lambda: answers(hosts))

            hosts.last.say(Outcome(outcome="parked", is_dropped=True, task=1, attempt=1))
            await until(lambda: world.lines.of("task.finished"))
            assert world.lines.of("task.finished")[0]["ending"] == ending
            assert len(world.lines.of("lease.lost")) == (ending == "lost")
            assert len(world.lines.of("task.parked")) == (ending == "parked")

    simulate(main, features=DURABLE)


@pytest.mark.parametrize("code", ["attempt_over", "task_not_held", "task_cancelled"])
def test_a_late_call_stops_the_routine_s2_58(code: str) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        world.fake.faults.append(Fault(QUESTIONS, status=409, body=refusal(code)))
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(call("ask", key="go"))
            await until(lambda: world.lines.of("task.finished"))

            assert [frame.task for frame in hosts.last.heard if isinstance(frame, Cancel)] == [1]
            assert world.lines.of("task.finished")[0]["ending"] == "lost"

    simulate(main, features=DURABLE)


def test_a_refused_question_is_the_routines_business() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        world.fake.faults.append(Fault(QUESTIONS, status=422, body=refusal("invalid_question")))
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(call("ask", key="go"))
            await until(lambda: answers(hosts))

            (answer,) = answers(hosts)
            assert (answer.status, json.loads(bytes(answer.body))) == (
                422,
                {"code": "invalid_question", "error": "no"},
            )
            assert len(hosts.last.scopes) == 1

    simulate(main, features=DURABLE)


def test_checkpoints_of_many_routines_go_out_together_and_tell_of_a_pause() -> None:
    async def main(world: World) -> None:
        world.start_tokens(2)
        hosts = ScriptedHosts({"plain": stay})
        results = {
            "results": [
                {"task": 1, "status": 200, "value": {"n": 1.0}},
                {"task": 2, "status": 200, "value": 2, "pause": True},
            ]
        }
        messages = "POST /tasks/messages"
        world.fake.faults += [
            Fault(messages, delay_s=5.0),
            Fault(messages, status=200, body=json.dumps(results).encode()),
        ]
        async with world.agent(hosts):
            await until(lambda: hosts.all and len(hosts.last.scopes) == 2)
            hosts.last.say(Noted(text="a request that is out for a while", **KEY))
            await until(lambda: world.out["/tasks/messages"])
            said = {"step": "a", "occurrence": 1, "version": 1, "value": 1}
            other = Call(id=9, task=2, attempt=1, call="checkpoint", body=Raw(json.dumps(said).encode()))
            hosts.last.say(call("checkpoint", id=4, **said), other)
            await until(lambda: len(answers(hosts)) == 2)

            one, two = answers(hosts)
            assert (one.id, one.task, bytes(one.body), one.is_pausing) == (4, 1, b'{"n": 1.0}', False)
            assert (two.id, two.task, bytes(two.body), two.is_pausing) == (9, 2, b"2", True)
            together = json.loads(world.heard("/tasks/messages")[-1].body)["messages"]
            assert [message["kind"] for message in together] == ["checkpoint", "checkpoint"]

    simulate(main, features=DURABLE)


def test_without_batch_a_checkpoint_is_a_request_of_its_own() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        standing = b'{"value":"first","pause":true}'
        world.fake.faults.append(Fault("PUT /tasks/1/checkpoints", status=200, body=standing))
        async with world.agent(hosts):
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(call("checkpoint", step="a", occurrence=1, version=1, value="second"))
            await until(lambda: answers(hosts))

            (answer,) = answers(hosts)
            assert (bytes(answer.body), answer.is_pausing) == (b'"first"', True)

    simulate(main, features=("checkpoints",))


def test_a_heartbeat_tells_of_a_pause_s1_71() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        world.fake.faults.append(
            Fault("POST /tasks/heartbeat", status=200, body=b'{"lost":[],"pause":[1,77]}')
        )
        async with world.agent(hosts):
            await until(lambda: hosts.all and [f for f in hosts.last.heard if isinstance(f, PauseTask)])

            assert [f for f in hosts.last.heard if isinstance(f, PauseTask)] == [PauseTask(**KEY)]

    simulate(main, features=DURABLE)


def test_a_stop_lets_parked_routines_leave_first_s1_44() -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({"plain": stay})
        world.fake.faults.append(Fault(QUESTIONS, status=201, body=PARKED))
        async with world.agent(hosts) as agent:
            await until(lambda: hosts.all and hosts.last.scopes)
            hosts.last.say(call("ask", key="go"))
            await until(lambda: answers(hosts))
            agent.stop.ask("test")
            await anyio.sleep(3.0)
            assert agent.exit is None

            hosts.last.say(Outcome(outcome="parked", is_dropped=True, task=1, attempt=1))
            await until(lambda: agent.exit is not None, limit_s=2.0)

    simulate(main, features=DURABLE)
