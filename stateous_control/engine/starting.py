"""Starts of tokens as operations: one, one with a key that makes it once, or many in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from stateous_contract.codes import Code, Refused
from stateous_contract.messages import StartResult, StartToken, TokenView

from stateous_control.engine.gathering import Operation
from stateous_control.graph.document import Graph
from stateous_control.rules.book import Token
from stateous_control.rules.children import names_at_start
from stateous_control.rules.moves import start_token
from stateous_control.rules.views import token_view
from stateous_control.store.books import OpenBook, Wanted
from stateous_control.store.supervised import Supervised

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def start(graph: Graph, owner: str, said: StartToken) -> Operation[tuple[TokenView, bool]]:
    """Start a token, or find the one that has this name already or that the key began."""

    def apply(opened: OpenBook) -> tuple[TokenView, bool]:
        token, is_new = _started(opened, graph, owner, said)
        return token_view(token), is_new

    return Operation(_wanted(graph, owner, [said]), apply, _keys(owner, [said]), 1)


def start_many(graph: Graph, owner: str, starts: Sequence[StartToken]) -> Operation[list[StartResult]]:
    """Start many tokens in one transaction; one that is refused is answered alone."""

    def apply(opened: OpenBook) -> list[StartResult]:
        return [_result(opened, graph, owner, said) for said in starts]

    return Operation(_wanted(graph, owner, starts), apply, _keys(owner, starts), len(starts))


def _result(opened: OpenBook, graph: Graph, owner: str, said: StartToken) -> StartResult:
    try:
        _, is_new = _started(opened, graph, owner, said)
    except Refused as refused:
        return refusal(said.token, refused)
    return StartResult(token=said.token, status=201 if is_new else 200)


def refusal(token: str | None, refused: Refused) -> StartResult:
    """Return what became of a start that was refused."""
    return StartResult(
        token=token, status=refused.code.status, code=refused.code.wire, error=refused.sentence
    )


def _started(opened: OpenBook, graph: Graph, owner: str, said: StartToken) -> tuple[Token, bool]:
    book = opened.book
    place = None if said.key is None else (owner, said.key)
    digest = "" if place is None else _digest(said)
    before = None if place is None else book.starts.get(place)
    if before is not None and before[0] != digest:
        raise Refused(
            Code.KEY_REUSED, f"the idempotency key {said.key!r} began something else, with another body"
        )
    token = opened.names.get((owner, said.token.lower()))
    is_new = token is None
    if token is None:
        token = start_token(book, graph, name=said.token, owner=owner, context=said.context)
    elif token.name != said.token:
        raise Refused(
            Code.INVALID_TOKEN_ID,
            f"the token id {said.token!r} is taken by {token.name!r}: case makes no difference",
        )
    if place is not None and before is None:
        book.starts[place] = (digest, token.id)
        book.starts_new.append((*place, True))
    return token, is_new


def _digest(said: StartToken) -> str:
    """Return what tells one start's body from another's; a context that is absent or null is an empty one."""
    context = None if said.context is None else _decode(said.context)
    return blake2b(_encode(("token", said.token, context or {})), digest_size=16).hexdigest()


def _wanted(graph: Graph, owner: str, starts: Sequence[StartToken]) -> Wanted:
    return Wanted(
        names={(owner, said.token) for said in starts},
        births={(owner, child) for said in starts for child in names_at_start(graph, said.token)},
        starts=len(starts),
        supervision=Supervised(start_keys={(owner, said.key) for said in starts if said.key is not None}),
    )


def _keys(owner: str, starts: Sequence[StartToken]) -> frozenset[object]:
    names = {(owner, said.token.lower()) for said in starts}
    return frozenset(names | {("start", owner, said.key) for said in starts if said.key is not None})
