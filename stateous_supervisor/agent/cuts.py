"""Whether something on the way takes no request as large as one whose connection is cut each time (BH-040). Pure.

One cut proves nothing: connections break. So it has to be cut `CUTS_MAX` times in a row, over `SPAN_S` at least, and
between any two of these somebody else must have got an answer. It must be large, too: whoever cuts a small request is
no limit on sizes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BYTES_MIN: Final = 65_536
CUTS_MAX: Final = 5
SPAN_S: Final = 30.0


class Cuts(NamedTuple):
    """How often one request was cut in a row: since when, and how many answers others had got by the last cut."""

    times: int = 0
    since: float = 0.0
    answers: int = 0


NONE: Final = Cuts()


def cut_again(cuts: Cuts, at: float, answers: int) -> Cuts:
    """Return the cuts after one more. One without an answer to somebody else before it counts for nothing.

    Args:
        cuts: those so far.
        at: when, on any clock.
        answers: how many answers everybody has got until now.
    """
    if not cuts.times:
        return Cuts(1, at, answers)
    return cuts if answers == cuts.answers else Cuts(cuts.times + 1, cuts.since, answers)


def are_enough(cuts: Cuts, at: float, size_bytes: int) -> bool:
    """Return whether the size of the request is to blame."""
    return size_bytes >= BYTES_MIN and cuts.times >= CUTS_MAX and at - cuts.since >= SPAN_S


def sentence(cuts: Cuts, size_bytes: int) -> str:
    """Say what happened to a request of that size."""
    return (
        f"the connection was cut {cuts.times} times in a row under its {size_bytes:,} bytes, while smaller requests "
        "were answered; something on the way takes less"
    )
