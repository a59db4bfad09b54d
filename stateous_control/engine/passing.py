"""Checkpoints on the short way: one statement for all that a request brings, and the rules for what it left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import UnsetType
from stateous_contract.messages import MessageResult, MessageResults, TaskMessage, TaskMessages

from stateous_control.engine.changes import messages
from stateous_control.engine.gathering import Operation
from stateous_control.rules.access import Access
from stateous_control.store.passing import Passed, pass_points
from stateous_control.store.pool import Pool

Run = Callable[[Operation[MessageResults]], Awaitable[MessageResults]]


async def take(
    pool: Pool, bundle: TaskMessages, access: Access, woken: Callable[[int], None], run: Run
) -> MessageResults:
    """Take messages in order: checkpoints of tasks that say nothing else by one statement, all others by the rules.

    Args:
        pool: the database.
        bundle: what a supervisor has to say.
        access: who asks; a key that is bound to states goes the long way.
        woken: is called with each task that went the short way.
        run: carries an operation out, by the rules.
    """
    others = {each.task for each in bundle.messages if each.kind != "checkpoint"}
    places = [place for place, each in enumerate(bundle.messages) if each.task not in others]
    if not places or access.states is not None:
        return await run(messages(bundle))
    points = [_point(bundle.messages[place]) for place in places]
    owners, _ = access.bounds
    written = await pass_points(pool, points, bundle.supervisor, bundle.instance, owners)
    results = {
        places[at]: _result(bundle.messages[places[at]], is_pausing) for at, is_pausing in written.items()
    }
    for task in {points[at].task for at in written}:
        woken(task)
    left = [each for place, each in enumerate(bundle.messages) if place not in results]
    if left:
        rest = iter((await run(messages(msgspec.structs.replace(bundle, messages=left)))).results)
        return MessageResults(
            results=[results.get(place) or next(rest) for place in range(len(bundle.messages))]
        )
    return MessageResults(results=[results[place] for place in range(len(bundle.messages))])


def _point(message: TaskMessage) -> Passed:
    assert not isinstance(message.value, UnsetType)
    occurrence, step = message.occurrence or 1, message.step or ""
    line = {"step": step, "occurrence": occurrence, "attempt": message.attempt}
    return Passed(
        message.task,
        message.attempt,
        message.version or 1,
        step,
        occurrence,
        bytes(message.value or b"null").decode(),
        msgspec.json.encode(line).decode(),
    )


def _result(message: TaskMessage, is_pausing: bool) -> MessageResult:  # noqa: FBT001 a row's own word
    return MessageResult(task=message.task, status=200, value=message.value, pause=is_pausing)
