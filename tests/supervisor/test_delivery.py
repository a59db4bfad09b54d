"""How outcomes, notes and memory reach the control plane (A-35 … A-40)."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import anyio
import pytest
from fakes import Fault
from msgspec import Raw
from supervisor.doubles import (
    BASELINE,
    BOTH,
    DONE,
    EXTENDED,
    ScriptedHosts,
    World,
    completed,
    kinds,
    simulate,
    until,
)

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.outbox import Envelope
from stateous_supervisor.link.frames import Noted, Remembered

DELIVERY = r"POST /tasks/(messages|\d+/report)"
HTML = Fault(DELIVERY, times=2, status=200, body=b"<html>")
UNREAD = [Fault(DELIVERY, times=2, status=302), Fault(DELIVERY, times=2, status=404), Fault(DELIVERY, times=4, closes=True)]  # fmt: skip


def reports(world: World) -> list[dict[str, Any]]:
    """Every report that was sent, whichever way."""
    found = []
    for heard in world.fake.heard:
        body = heard.body if isinstance(heard.body, dict) else json.loads(heard.body or b"{}")
        if heard.path == "/tasks/messages":
            found += [message for message in body["messages"] if message["kind"] == "report"]
        elif heard.path.endswith("/report"):
            found.append(body | {"outcome": body["kind"], "task": int(heard.path.split("/")[2])})
    return found


@BOTH
def test_notes_and_memory_arrive_before_the_outcome_in_order_a_36(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({})

        def routine(grant: Any) -> dict[str, str]:
            key = {"task": grant.task, "attempt": grant.attempt}
            hosts.last.say(
                Noted(text="one", **key),
                Remembered(key="k", value=Raw(b"1"), **key),
                Noted(text="two", **key),
            )
            return DONE

        hosts.routines["plain"] = routine
        async with world.agent(hosts):
            await until(lambda: completed(world) == 1)

            told = [kind for kind in kinds(world) if kind in ("note", "memory_set", "task_done")]
            assert told == ["note", "memory_set", "note", "task_done"]

    simulate(main, features=features)


@BOTH
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_report_without_an_answer_is_sent_again_with_the_same_content_a_37(
    features: tuple[str, ...], status: int
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault(DELIVERY, times=3, status=status, body=b"{}"))

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 1)

            sent = reports(world)
            assert len(sent) == 4
            assert all(one == sent[0] for one in sent)
            assert [task.attempt for task in world.fake.tasks.values()] == [1]

    simulate(main, features=features)


# The baseline's answers to reports have nothing that is read, so HTML with status 200 cannot be told there.
@pytest.mark.parametrize(("features", "fault"), [(EXTENDED, HTML), *product((EXTENDED, BASELINE), UNREAD)])
def test_a_proxys_answer_to_a_report_is_none_a_37(features: tuple[str, ...], fault: Fault) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault(**vars(fault)))

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 1)

            assert "task_failed" not in kinds(world)

    simulate(main, features=features)


@BOTH
def test_a_lost_answer_to_a_report_moves_the_token_once_a_37(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault(DELIVERY, times=2, is_done=True, closes=True))

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: world.lines.of("task.finished"))

            assert kinds(world).count("task_done") == 1
            assert "task_failed" not in kinds(world)
            assert world.fake.tokens["t0"].status == "completed"

    simulate(main, features=features)


@BOTH
def test_retry_after_is_respected_a_37(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault(DELIVERY, status=503, retry_after="40"))

        async with world.agent({"plain": lambda _: DONE}):
            began = anyio.current_time()
            await until(lambda: completed(world) == 1)

            assert 40 <= anyio.current_time() - began <= 75

    simulate(main, features=features)


@BOTH
def test_a_refused_outcome_is_replaced_once_by_a_failure_with_the_refusal_a_38(
    features: tuple[str, ...],
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1, path="brittle")

        async with world.agent({"brittle": lambda _: {"outcome": "event", "event": "undeclared"}}):
            await until(lambda: world.lines.of("task.finished"))

            assert [one["outcome"] for one in reports(world)] == ["event", "failed"]
            (failed,) = [e for e in world.fake.tokens["t0"].history if e["kind"] == "task_failed"]
            assert "event_not_allowed" in failed["data"]["error"]

    simulate(main, features=features)


@BOTH
def test_a_report_of_an_attempt_that_is_over_is_dropped_with_one_line_a_38(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)

        def routine(_: Any) -> dict[str, str]:
            world.fake._steer("t0", "cancel", {})
            return DONE

        async with world.agent({"plain": routine}):
            await until(lambda: world.lines.of("task.finished"))

            assert len(reports(world)) == 1
            (refused,) = world.lines.of("report.refused")
            assert refused["level"] == "info"

    simulate(main, features=features)


@BOTH
def test_an_outcome_beyond_the_limit_is_never_sent_a_39(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        big = DONE | {"context": Raw(b'{"label":"' + b"x" * 1_100_000 + b'"}')}

        async with world.agent({"plain": lambda _: big}):
            await until(lambda: world.lines.of("task.finished"))

            (sent,) = reports(world)
            assert sent["outcome"] == "failed"
            assert "1048576" in sent["error"]

    simulate(main, features=features)


def test_a_proxy_that_takes_less_is_found_message_by_message_bh_040() -> None:
    async def main(world: World) -> None:
        world.start_tokens(8)
        real = world.fake.__call__

        async def proxy(scope: Any, receive: Any, send: Any) -> None:
            length = int(dict(scope["headers"]).get(b"content-length", b"0"))
            if length > 100_000:
                world.fake.faults.insert(0, Fault("POST /tasks/messages", status=413))
            await real(scope, receive, send)

        world.fake.__class__ = type("Behind", (type(world.fake),), {"__call__": lambda _, *a: proxy(*a)})

        def routine(grant: Any) -> dict[str, Any]:
            large = DONE | {"context": Raw(b'{"label":"' + b"x" * 200_000 + b'"}')}
            return large if grant.token == "t3" else DONE

        async with world.agent({"plain": routine}, tasks=8):
            await until(lambda: len(world.lines.of("task.finished")) == 8)

            assert completed(world) == 7
            (failed,) = [e for e in world.fake.tokens["t3"].history if e["kind"] == "task_failed"]
            assert "too large" in failed["data"]["error"]

    simulate(main)


def test_one_tasks_message_that_waits_holds_up_no_other_task_a_37() -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)
        world.fake.faults.append(Fault("POST /tasks/1/report", times=50, status=503))

        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 2, 5.0)

            assert world.fake.tokens["t0"].status == "active"
            world.fake.faults.clear()

    simulate(main, features=BASELINE)


def test_in_a_batch_too_a_message_that_waits_holds_up_only_its_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(world: World) -> None:
        world.start_tokens(3)
        real = world.fake._messages
        busy = [3]

        def messages(body: Any) -> Any:
            mine = [m for m in body["messages"] if m["task"] == 1]
            if not mine or not busy[0]:
                return real(body)
            busy[0] -= 1
            rest = iter(real(body | {"messages": [m for m in body["messages"] if m["task"] != 1]})["results"])
            busy_one = {"task": 1, "status": 503, "code": "database_busy", "error": "busy"}
            return {"results": [busy_one if m["task"] == 1 else next(rest) for m in body["messages"]]}

        monkeypatch.setattr(world.fake, "_messages", messages)
        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 3)

            assert [task.attempt for task in world.fake.tasks.values()] == [1, 1, 1]
            assert sum(one["task"] == 1 for one in reports(world)) == 4

    simulate(main)


def test_what_comes_while_a_request_is_out_goes_with_the_next_one() -> None:
    async def main(world: World) -> None:
        world.start_tokens(30)
        world.fake.faults += [Fault("POST /tasks/messages", delay_s=1.0, is_done=False)]

        async def routine(grant: Any) -> dict[str, str]:
            await anyio.sleep(grant.task / 100)
            return DONE

        async with world.agent({"plain": routine}, tasks=30):
            await until(lambda: completed(world) == 30)

            assert world.most_out["/tasks/messages"] == 1
            assert len({id(h) for h in world.heard("/tasks/messages")}) <= 4

    simulate(main)


def test_on_the_baseline_several_tasks_are_reported_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        world.start_tokens(20)

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"].endswith("/report"):
                world.out["report"] += 1
                world.most_out["report"] = max(world.most_out["report"], world.out["report"])
                await anyio.sleep(1.0)
                world.out["report"] -= 1
            await app(scope, receive, send)

        app = world.app
        monkeypatch.setattr(world, "app", slow)
        async with world.agent({"plain": lambda _: DONE}, tasks=20):
            await until(lambda: completed(world) == 20)

            assert world.most_out["report"] == 8

    simulate(main, features=BASELINE)


@BOTH
def test_what_an_earlier_process_finished_is_delivered_first_a_35(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        world.fake.faults.append(Fault(DELIVERY, times=99, status=503))
        async with world.agent({"plain": lambda _: DONE}, instance="one") as dying:
            await until(lambda: reports(world))
            dying.kill()
        world.fake.faults.clear()
        rows = world.outbox._database.execute("SELECT * FROM messages").fetchall()
        left = [Envelope._make([*row[:5], Identity(row[5], row[6]), *row[7:]]) for row in rows]
        world.outbox.found = world.outbox.found._replace(messages=left)

        async with world.agent({"plain": lambda _: DONE}, instance="two"):
            await until(lambda: completed(world) == 1)

            assert [task.attempt for task in world.fake.tasks.values()] == [1]
            assert reports(world)[-1].get("instance", "one") == "one"
            await until(lambda: world.lines.of("task.finished"))
            ended = world.lines.of("task.finished")[-1]
            assert (ended["outcome"], ended["event_name"], ended["ending"]) == ("event", "noted", "delivered")
            assert ended.get("duration_s") is None  # it ran in another process, which told nobody how long
        assert world.outbox._database.execute("SELECT count(*) FROM messages").fetchone() == (0,)

    simulate(main, features=features)


def test_after_a_delivery_nothing_is_left_on_disk() -> None:
    async def main(world: World) -> None:
        world.start_tokens(50)

        async with world.agent({"plain": lambda _: DONE}, tasks=10):
            await until(lambda: completed(world) == 50)
            await anyio.sleep(1.0)

            for table in ("grants", "messages", "aside"):
                assert world.outbox._database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)

    simulate(main)


def test_an_outcome_is_on_disk_before_it_is_sent_a_35(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        seen: list[Any] = []
        real = world.fake._messages

        def messages(body: Any) -> Any:
            seen.extend(world.outbox._database.execute("SELECT task, kind FROM messages"))
            return real(body)

        monkeypatch.setattr(world.fake, "_messages", messages)
        async with world.agent({"plain": lambda _: DONE}):
            await until(lambda: completed(world) == 1)

            assert seen == [(1, "report")]

    simulate(main)


@BOTH
def test_a_refused_note_is_told_and_the_outcome_still_arrives(features: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        world.start_tokens(1)
        hosts = ScriptedHosts({})

        def routine(grant: Any) -> dict[str, str]:
            hosts.last.say(Noted(task=grant.task, attempt=grant.attempt, text="x" * 501))
            return DONE

        hosts.routines["plain"] = routine
        async with world.agent(hosts):
            await until(lambda: completed(world) == 1)

            (refused,) = world.lines.of("message.refused")
            assert (refused["message"], refused["code"]) == ("note", "invalid_payload")

    simulate(main, features=features)
