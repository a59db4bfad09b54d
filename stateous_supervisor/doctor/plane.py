"""The control plane as the agent's own client sees it: what it is, how far away it is, what its clock says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from statistics import median
from typing import Final

import anyio
import msgspec
from stateous_contract.health import Health
from stateous_contract.reliance import Reliance, changed_states, reliance_of

from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.client import Answer, Client
from stateous_supervisor.agent.control_plane import ANSWER_BYTES_MAX, ControlPlane, Terms
from stateous_supervisor.agent.faults import Denied, Refused, Unanswered
from stateous_supervisor.doctor.facts import PlaneFacts

CALL_S: Final = 10.0
ROUNDS: Final = 5
DATE_DOUBT_S: Final = 1.0  # a Date header has whole seconds


async def ask(
    client: Client,
    *,
    url: str,
    name: str,
    checksum: Callable[[], str | None],
    reliance: Callable[[], Reliance | None] = lambda: None,
    wall: Callable[[], float] = time.time,
) -> PlaneFacts:
    """Greet the control plane, show it the key where it has keys, and time some round trips.

    Args:
        client: that of the folder's configuration.
        url: where it is, to be shown.
        name: under which the agent would come.
        checksum: gives the checksum of the folder's contract.
        reliance: gives what its routines rely on; None where it does not say.
        wall: this box's clock.
    """
    plane = ControlPlane(client)
    try:
        with anyio.fail_after(CALL_S):
            terms = await plane.greet()
        if terms.offers("auth"):
            # It renews nothing; but it is refused without a good key, which /health is not.
            await plane.beat(Identity(name, "doctor"), [], deadline_s=CALL_S)
        trips = [await _trip(client, wall) for _ in range(ROUNDS)]
        changed = None if terms.checksum == checksum() else await _changed(plane, reliance())
    except Denied as error:
        return PlaneFacts(url=url, error=error.sentence, is_denied=True)
    except (Unanswered, Refused) as error:
        return PlaneFacts(url=url, error=error.sentence)
    except TimeoutError:
        return PlaneFacts(url=url, error=f"{url} did not answer within {CALL_S:g} s")
    return replace(_facts(url, terms, checksum(), trips), changed=changed)


async def _changed(plane: ControlPlane, ours: Reliance | None) -> tuple[str, ...] | None:
    if ours is None:
        return None
    try:
        return tuple(changed_states(ours, reliance_of(await plane.workflow())))
    except ValueError:  # what it serves is no workflow
        return None


_Trip = tuple[float, float, Answer]  # seconds, our wall time in its middle, the answer


async def _trip(client: Client, wall: Callable[[], float]) -> _Trip:
    before, began = wall(), anyio.current_time()
    answer = await client.call("GET", "/health", deadline_s=CALL_S, bytes_max=ANSWER_BYTES_MAX)
    took_s = anyio.current_time() - began
    return took_s, before + took_s / 2, answer


def _facts(url: str, terms: Terms, checksum: str | None, trips: list[_Trip]) -> PlaneFacts:
    took_s, middle, answer = min(trips, key=lambda trip: trip[0])
    health = msgspec.json.decode(answer.body, type=Health)
    clock, doubt_s = _clock(health.now, answer.date)
    return PlaneFacts(
        url=url,
        features=tuple(sorted(terms.features)),
        is_extended=terms.is_extended,
        alarms=tuple(health.alarms or ()),
        checksum=terms.checksum,
        folder_checksum=checksum,
        lease_s=terms.lease_s,
        heartbeat_s=terms.heartbeat_s,
        round_trip_s=median(trip[0] for trip in trips),
        skew_s=None if clock is None else clock - middle,
        skew_doubt_s=doubt_s + took_s / 2,
    )


def _clock(now: str | None, date: str) -> tuple[float | None, float]:
    """Return the other side's wall time in seconds, and how wrong it may be."""
    if now is not None:
        try:
            told = datetime.fromisoformat(now)
        except ValueError:
            pass
        else:
            return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp(), 0.0
    try:
        # It was cut down to whole seconds; half of one is the better guess.
        return parsedate_to_datetime(date).timestamp() + DATE_DOUBT_S / 2, DATE_DOUBT_S
    except ValueError:
        return None, 0.0
