"""Routines without a graph, and children, as operations: what the book must hold, and which rule decides."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import Spawn, Spawned, Start

from stateous_control.engine.gathering import Operation
from stateous_control.rules import routines
from stateous_control.rules.durable import is_pausing
from stateous_control.store.books import OpenBook, Wanted
from stateous_control.store.supervised import OWN_VERSION, Supervised

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def start(owner: str, said: Start, key: str | None) -> Operation[tuple[int, bool]]:
    """Start a routine; the answer is its task and whether it is new. The same key and body start nothing again."""
    digest = _digest(said)
    place = None if key is None else (owner, key)

    def apply(opened: OpenBook) -> tuple[int, bool]:
        book = opened.book
        known = None if place is None else book.starts.get(place)
        if known is not None:
            if known[0] != digest:
                raise Refused(
                    Code.KEY_REUSED, f"the idempotency key {key!r} began task {known[1]} with another body"
                )
            return known[1], False
        task = routines.start(book, owner, said)
        if place is not None:
            book.starts[place] = (digest, task.id)
            book.starts_new.append((*place, False))
        return task.id, True

    wanted = Wanted(starts=1, supervision=Supervised(start_keys=set() if place is None else {place}))
    keys = frozenset() if place is None else frozenset({("start", *place)})
    return Operation(wanted, apply, keys, 1)


def _digest(said: Start) -> str:
    policy = (said.retries, said.backoff_s, said.max_backoff_s, said.not_retryable or [])
    body = (said.routine, said.version, policy, _decode(said.input))
    return blake2b(_encode(body), digest_size=16).hexdigest()


def spawn(task_id: int, said: Spawn) -> Operation[tuple[Spawned, bool]]:
    """Start a child, or find the one that this step of the parent started; the flag says whether it is new."""

    def apply(opened: OpenBook) -> tuple[Spawned, bool]:
        parent = opened.task(task_id)
        child, is_new = routines.spawn(opened.book, parent, said)
        return Spawned(task=child, pause=is_pausing(opened.book, parent)), is_new

    place = (task_id, OWN_VERSION, said.step, said.occurrence)
    wanted = Wanted(tasks={task_id}, moves=1, supervision=Supervised(checkpoints={place}))
    return Operation(wanted, apply, frozenset({task_id}), 1)
