"""One claim transaction: earlier answers again, then fresh work for everyone who asks at once.

It waits for nothing but its turn with the same request id: tasks and tokens that somebody holds are passed over.
The waiting for work, and who asks, is `claims.py`'s.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from stateous_contract.limits import BATCH_BYTES_MAX
from stateous_contract.messages import ClaimRequest, EnteredBy, Grant

from stateous_control.engine.replaying import add_saved, saved_bytes
from stateous_control.engine.sharing import Demand, share_out, states_of
from stateous_control.engine.views import IsGone
from stateous_control.rules.access import Access
from stateous_control.rules.queues import is_routine, kind_of, queue_of, queue_of_state, routine_of
from stateous_control.store.columns import columns
from stateous_control.store.pool import Mode, Pool, Row, Session
from stateous_control.store.statements import statements

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
SLOW_LOOK_S: Final = 0.01
WHOLE_LOOK_EVERY_S: Final = 0.5
WHOLE_LOOK_PAUSES: Final = 50
WHOLE_LOOK_EVERY_S_MAX: Final = 10.0
REQUESTS_KEPT: Final = 8
INSTANCES_MAX: Final = 10_000
BYTES_AT_ONCE_MAX: Final = 8 * BATCH_BYTES_MAX


@dataclass(eq=False, slots=True)
class Claim:
    """One request for work, with where its answer goes."""

    supervisor: str
    instance: str
    request: str | None
    states: tuple[str, ...]
    demand: Demand
    wait_until: float
    is_gone: IsGone
    access: Access
    answer: asyncio.Future[list[Grant]]
    looks: int = 0

    @property
    def key(self) -> tuple[str, str, str, str] | None:
        """Whose turn it takes: without an instance a supervisor has one claim at a time, whatever its ids."""
        if self.request is None:
            return None
        return (self.access.scope, self.supervisor, self.instance, self.request if self.instance else "")

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What it is called by others who ask about it: a name means something among the same owners only."""
        return (self.access.scope, self.supervisor, self.instance, self.request or "")


@dataclass(slots=True)
class Handed:
    """What one transaction brought: grants by claim, and the claims whose work is there but held by somebody now."""

    grants: dict[Claim, list[Grant]] = field(default_factory=dict)
    passed_over: list[Claim] = field(default_factory=list)
    saved: list[tuple[Row, Grant]] = field(default_factory=list)
    kept: list[Claim] = field(default_factory=list)

    def add(self, claim: Claim, row: Row, grant: Grant) -> None:
        """Take in a grant; its task may have saved something that replay reads."""
        self.grants.setdefault(claim, []).append(grant)
        if row["saved_bytes"]:
            self.saved.append((row, grant))


@dataclass(frozen=True, slots=True)
class _Ready:
    """A task that this transaction has locked."""

    row: Row
    state: str
    size_bytes: int


def claim_of(request: ClaimRequest, is_gone: IsGone, wait_until: float, access: Access) -> Claim:
    """Return the claim that a request makes; states that may have no task are left out."""
    most = 1 if request.max is None else request.max
    caps = request.max_by_state or {}
    return Claim(
        supervisor=request.supervisor,
        instance=request.instance or "",
        request=request.request,
        states=tuple(sorted(queue for queue in queues_of(request) if caps.get(kind_of(queue), 1) > 0)),
        demand=Demand(most, caps),
        wait_until=wait_until,
        is_gone=is_gone,
        access=access,
        answer=asyncio.get_running_loop().create_future(),
    )


def queues_of(request: ClaimRequest) -> set[str]:
    """Return the names under which the work of a claim stands: each version of each state and of each routine.

    What looks like the name of another queue is the name of no state, and matches nothing (A.3).
    """
    versions, routines = request.versions or {}, (request.routines or {}).items()
    return {
        *(
            queue_of_state(state, version)
            for state in request.states
            if kind_of(state) == state and not is_routine(state)
            for version in versions.get(state, (1,))
        ),
        *(queue_of(name, version) for name, versions in routines for version in versions),
    }


class Granting:
    """Hands out the work of one set of queues; it remembers where each of them begins, and is told what comes before.

    Args:
        pool: the database. lease_s: how long a grant is held without a heartbeat.
        access: who may stand here: the owners and states whose work is handed out.

    """

    def __init__(self, pool: Pool, lease_s: float, access: Access) -> None:
        self._pool = pool
        self._lease_s = lease_s
        self._access = access
        self._heads: dict[tuple[str, str], datetime] = {}
        self._heads_until = 0.0
        self._came: dict[tuple[str, str], datetime] = {}
        self._kept: dict[tuple[str, str], list[str]] = {}

    def came(self, queue: tuple[str, str], ready_at: datetime) -> None:
        """Take in that a task of this queue is ready since `ready_at`; a resume gives a task its old place back."""
        self._came[queue] = min(ready_at, self._came.get(queue, ready_at))
        self._lower(queue, ready_at)

    def _lower(self, queue: tuple[str, str], ready_at: datetime) -> None:
        if ready_at < self._heads.get(queue, LONG_AGO):
            self._heads[queue] = ready_at

    async def hand_out(self, claims: Sequence[Claim]) -> Handed:
        """Serve claims of the same states in one transaction."""
        handed = await self._pool.run(lambda session: self._hand_out(session, claims), Mode.CLAIM)
        self._keep(handed.kept)
        return handed

    def _keep(self, claims: Sequence[Claim]) -> None:
        """Remember which ids are on record, so that the oldest of an instance can be forgotten by its whole key.

        What this process does not know of, from before its start or from another one, is pruned by its age.
        """
        if len(self._kept) > INSTANCES_MAX:
            self._kept.clear()
        for process, known in self._on_record(claims).items():
            self._kept[process] = known[-REQUESTS_KEPT:]

    def _on_record(self, claims: Sequence[Claim]) -> dict[tuple[str, str], list[str]]:
        """Return the ids on record of the instances that claim, oldest first, with those of these claims."""
        found: dict[tuple[str, str], list[str]] = {}
        for claim in claims:
            process = (claim.supervisor, claim.instance)
            known = found.get(process) or self._kept.get(process, [])
            request = claim.request or ""
            found[process] = [*(each for each in known if each != request), request]
        return found

    async def _hand_out(self, session: Session, claims: Sequence[Claim]) -> Handed:
        handed = Handed()
        older = await self._repeat(session, claims, handed)
        asking = [claim for claim in claims if claim not in handed.grants and not claim.is_gone()]
        if asking and asking[0].states:
            ready = await self._pick(session, asking)
            shares = share_out(ready, [claim.demand for claim in asking], BATCH_BYTES_MAX)
            chosen = [
                (claim, [ready[place] for place in places])
                for claim, places in zip(asking, shares, strict=True)
            ]
            if ready:
                await self._give(session, chosen, handed)
        await add_saved(session, handed.saved)
        empty = [claim for claim in asking if claim not in handed.grants]
        if empty and empty[0].states and await self._is_ready(session, empty[0].states):
            handed.passed_over = empty
        forgotten = [claim for claim in empty if claim in older]
        if forgotten:
            names = [claim.supervisor for claim in forgotten]
            requests = [claim.request for claim in forgotten]
            await session.fetch(statements.forget, names, requests, self._access.scope)
        return handed

    async def _repeat(self, session: Session, claims: Sequence[Claim], handed: Handed) -> set[Claim]:
        """Answer again what is still held, and return the claims of supervisors that have an older id on record."""
        named = [claim for claim in claims if claim.request is not None]
        if not named:
            return set()
        await session.fetch(statements.take_turns, sorted({_turn(claim) for claim in named}))
        rows = await session.fetch(
            statements.remembered,
            list(range(len(named))),
            [claim.supervisor for claim in named],
            [claim.instance for claim in named],
            [claim.request for claim in named],
            self._access.scope,
        )
        older = {named[row["number"]] for row in rows if row["request"] != named[row["number"]].request}
        held = {
            task: (attempt, named[row["number"]])
            for row in rows
            if row["request"] == named[row["number"]].request
            for task, attempt in zip(row["tasks"], row["attempts"], strict=True)
        }
        if held:
            again = await session.fetch(
                statements.grant_again,
                sorted(held),
                [held[task][0] for task in sorted(held)],
                [held[task][1].supervisor for task in sorted(held)],
                [held[task][1].instance for task in sorted(held)],
                self._lease_s,
                list(self._access.own),
                self._access.bounds[1],
            )
            for row in again:
                claim = held[row["id"]][1]
                handed.add(claim, row, self._grant(row, row["attempt"], row["generation"]))
        return older

    async def _pick(self, session: Session, claims: Sequence[Claim]) -> list[_Ready]:
        """Lock the oldest ready tasks.

        Before a queue's first task lie the dead entries of finished claims, and while an old snapshot is open nobody
        can remove them. Once walking past them is slow, most looks begin where the last whole one found its first, and
        the longer a whole look takes, the rarer it is: it may cost a fiftieth of the time.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        if began < self._heads_until:
            ready = await self._pick_since(session, claims, self._heads)
            if ready:
                self._begin_at(ready)
                return ready
        self._came = {}  # what comes while this look is under way, it may not have seen
        ready = await self._pick_since(session, claims, {})
        self._heads = {}
        self._begin_at(ready)
        took_s = clock() - began
        pause_s = max(WHOLE_LOOK_EVERY_S, min(WHOLE_LOOK_PAUSES * took_s, WHOLE_LOOK_EVERY_S_MAX))
        self._heads_until = clock() + pause_s if took_s > SLOW_LOOK_S else 0.0
        return ready

    def _begin_at(self, ready: list[_Ready]) -> None:
        """Remember where queues begin of which nothing is remembered: the look that found these walked all of them."""
        for one in ready:
            self._heads.setdefault((one.row["owner"], one.state), one.row["ready_at"])
        for queue, ready_at in self._came.items():
            self._lower(queue, ready_at)

    async def _pick_since(
        self, session: Session, claims: Sequence[Claim], heads: dict[tuple[str, str], datetime]
    ) -> list[_Ready]:
        states, owners = self._queues(claims[0].states)
        demands = [claim.demand for claim in claims]
        most = sum(demand.most for demand in demands)
        per_state = states_of(demands, states)
        since = [heads.get(queue, LONG_AGO) for queue in zip(owners, states, strict=True)]
        bytes_max = min(BYTES_AT_ONCE_MAX, BATCH_BYTES_MAX * len(claims))
        rows = await session.fetch(statements.pick, states, per_state, since, most, bytes_max, owners)
        if not rows and len(states) > 1:
            # The oldest of one state may all be held while another state has free work: ask for a few of each.
            few = [min(count, len(claims)) for count in per_state]
            rows = await session.fetch(statements.pick, states, few, since, sum(few), bytes_max, owners)
        return [_Ready(row, row["state"], _size_bytes(row)) for row in rows]

    async def _is_ready(self, session: Session, states: tuple[str, ...]) -> bool:
        return bool(await session.fetch(statements.ready_states, *self._queues(states)))

    def _queues(self, states: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Return states and owners, pair by pair: each owner's tasks of each state are a queue."""
        own = self._access.own
        return [state for _ in own for state in states], [owner for owner in own for _ in states]

    async def _give(self, session: Session, chosen: list[tuple[Claim, list[_Ready]]], handed: Handed) -> None:
        given: list[tuple[Any, ...]] = []
        asked: list[tuple[Any, ...]] = []
        lines: dict[int, int] = {}
        for claim, shares in chosen:
            if not shares:
                continue
            if claim.request is not None:
                span = (len(given) + 1, len(given) + len(shares))
                asked.append((claim.supervisor, claim.instance, claim.request, *span))
                if claim.instance:
                    handed.kept.append(claim)
            for share in shares:
                row, attempt = share.row, share.row["attempt"] + 1
                lines[row["token_id"]] = seq = lines.get(row["token_id"], row["seq"]) + 1
                given.append((row["id"], row["token_id"], attempt, claim.supervisor, claim.instance, seq,
                              _line(row["id"], claim.supervisor, attempt)))  # fmt: skip
                handed.add(claim, row, self._grant(row, attempt, row["generation"] + 1))
        if given:
            written = [*columns(given, 7), list(lines), list(lines.values()), *columns(asked, 5)]
            locks = [share.row["lock_id"] for _, shares in chosen for share in shares]
            over = columns(
                [
                    (*process, request)
                    for process, known in self._on_record(handed.kept).items()
                    for request in known[:-REQUESTS_KEPT]
                ],
                3,
            )
            await session.fetch(statements.give, *written, self._lease_s, self._access.scope, locks, *over)

    def _grant(self, row: Row, attempt: int, generation: int) -> Grant:
        if is_routine(row["state"]):
            return self._grant_routine(row, attempt, generation)
        payload, error = row["entered_payload"], row["entered_error"]
        return Grant(
            task=row["id"],
            token=row["name"],
            state=kind_of(row["state"]),
            visit=row["visit"],
            attempt=attempt,
            context=Raw(row["context"].encode()),
            memory=Raw(("{" + (row["memory"] or "") + "}").encode()),
            entered_by=EnteredBy(
                name=row["entered_by"],
                payload=UNSET if payload is None else Raw(payload.encode()),
                error=UNSET if error is None else error,
            ),
            lease_s=self._lease_s,
            generation=generation,
            owner=row["owner"],
            suspect=row["is_suspect"],
            version=row["handler_version"],
        )

    def _grant_routine(self, row: Row, attempt: int, generation: int) -> Grant:
        routine, version = routine_of(row["state"])
        return Grant(
            task=row["id"],
            attempt=attempt,
            memory=Raw(("{" + (row["memory"] or "") + "}").encode()),
            routine=routine,
            input=Raw(row["input"].encode()),
            lease_s=self._lease_s,
            generation=generation,
            owner=row["owner"],
            suspect=row["is_suspect"],
            version=version,
        )


def _line(task: int, supervisor: str, attempt: int) -> str:
    return msgspec.json.encode({"task": task, "supervisor": supervisor, "attempt": attempt}).decode()


def _size_bytes(row: Row) -> int:
    texts = (row["context"], row["memory"], row["entered_payload"], row["input"])
    size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts if text)
    return 400 + size + saved_bytes(row)


def _turn(claim: Claim) -> int:
    """The number of the lock that claims with one key take turns on."""
    digest = hashlib.blake2b("\0".join(("claim", *(claim.key or ()))).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
