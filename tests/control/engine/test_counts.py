"""What is counted on rows so that people can see it, what is bounded by the counts, and whom a bundle speaks for."""

from __future__ import annotations

from typing import Any

import pytest
from control.engine.planes import ask, plane, queue, sql
from msgspec import Raw
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Report, TaskMessage, TaskMessages

from stateous_control.engine.operations import ControlPlane
from stateous_control.store.people import TaskFilter


async def kinds(one: ControlPlane, name: str) -> list[str]:
    return [entry.kind for entry in await one.history(name)]


async def test_an_ended_tokens_refusals_are_counted_on_its_row_and_then_write_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stateous_control.rules import rejections

    monkeypatch.setattr(rejections, "LATE_LINES_MAX", 3)
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.cancel("T")
        before = len(await kinds(one, "T"))
        for _ in range(3):
            for _ in range(2):
                with pytest.raises(Refused) as caught:
                    await one.fire("T", "coded", None)
                assert caught.value.code is Code.TOKEN_NOT_ACTIVE
            # A control plane that starts anew goes on counting where the last one was.
            one._shelf.graphs.clear()
        assert len(await kinds(one, "T")) - before == 3
        row = (await sql(database, "SELECT xmin::text AS written, late_events FROM tokens"))[0]
        with pytest.raises(Refused):
            await one.fire("T", "coded", None)
        assert (await sql(database, "SELECT xmin::text AS written, late_events FROM tokens"))[0] == row
    assert row["late_events"] == 3


async def test_what_was_given_back_is_counted_and_shown_without_a_limit(database: str) -> None:
    """`drain` and `not_started` cost nothing however often; a dead host's are counted apart (DX-18)."""
    async with plane(database) as one:
        await queue(database, 1)
        for attempt, reason in enumerate(["drain", "not_started"] * 6 + ["agent_died", "drain"], 1):
            await one.claim(ask("coding"))
            said = Report(kind="released", reason=reason, attempt=attempt, supervisor="box", instance="i1")
            await one.report(1, said)
        view = await one.supervision.task(1)
        (listed,) = (await one.supervision.tasks(TaskFilter(), limit=5, cursor=None)).entries
        paused = await one.supervision.pause(1, view.generation, None)
    assert (view.given_back, view.releases, view.failures, view.attempt) == (13, 1, 0, 14)
    assert (listed.given_back, listed.releases) == (paused.given_back, paused.releases) == (13, 1)


@pytest.mark.parametrize("kind", ["note", "memory", "checkpoint", "report"])
async def test_a_bundle_of_another_instance_is_judged_like_the_single_requests(
    database: str, kind: str
) -> None:
    """BH-010: every message of a bundle is its supervisor's, instance's and attempt's; a namesake's is refused."""
    parts: dict[str, Any] = {
        "text": "t",
        "key": "k",
        "value": Raw(b"1"),
        "step": "s",
        "outcome": "event",
        "event": "coded",
    }
    if kind != "checkpoint":
        del parts["step"]
    if kind == "note":
        del parts["key"], parts["value"]
    async with plane(database) as one:
        await one.start_token("T", None)
        await one.claim(ask("coding"))
        before = await kinds(one, "T")
        message = TaskMessage(task=1, attempt=1, kind=kind, **parts)
        for supervisor, instance in (("box", "i2"), ("other", "i1")):
            bundle = TaskMessages(supervisor=supervisor, instance=instance, messages=[message])
            (result,) = (await one.messages(bundle)).results
            assert (result.status, result.code) == (409, "task_not_held")
        assert await kinds(one, "T") == before
        (result,) = (
            await one.messages(TaskMessages(supervisor="box", instance="i1", messages=[message]))
        ).results
        assert result.status < 300
