"""Guards of transitions: a closed subset of a Python expression, parsed once into closures (C.4).

No text is ever evaluated by the interpreter: the grammar is Python's, the meaning is ours. A guard that holds or
does not hold is all that comes out; nothing a context or a payload holds can make one raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Test = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, int], Sequence[Mapping[str, Any]]], Any]


@dataclass(frozen=True, slots=True)
class Reads:
    """What a guard looks at: context keys, payload fields, counted events, and whether at branches."""

    context: frozenset[str] = frozenset()
    payload: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    branches: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """A parsed guard. Two guards are equal when their texts are."""

    text: str
    reads: Reads = field(compare=False)
    test: Test = field(repr=False, compare=False)

    def holds(
        self,
        context: Mapping[str, Any],
        payload: Mapping[str, Any],
        counts: Mapping[str, int],
        branches: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        """Say whether the guard is true of decoded JSON values; never raises."""
        return bool(self.test(context, payload, counts, branches))
