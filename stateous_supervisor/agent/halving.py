"""Which attempts' messages go together after a request for many got no answer (A-37). Pure.

One message may be to blame: one that the other side stumbles over, or that takes it too long. So those that went
together are sent in halves, and halves of halves, until the one that gets no answer is alone; whatever else was with
it has arrived by then. Attempts are told apart by keys.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

Key = tuple[int, int]
Groups = tuple[tuple[Key, ...], ...]


def kept(groups: Groups, keys: Container[Key]) -> Groups:
    """Return the groups with nothing but `keys` in them."""
    return tuple(left for group in groups if (left := tuple(key for key in group if key in keys)))


def without(groups: Groups, sent: Sequence[Key]) -> Groups:
    """Return the groups after `sent` have arrived."""
    gone = frozenset(sent)
    return tuple(left for group in groups if (left := tuple(key for key in group if key not in gone)))


def split(groups: Groups, sent: Sequence[Key]) -> Groups:
    """Return the groups after `sent`, two or more, went together and got no answer: their halves come last."""
    half = (len(sent) + 1) // 2
    return (*without(groups, sent), tuple(sent[:half]), tuple(sent[half:]))


def turn(groups: Groups, ready: Sequence[Key], number: int) -> Sequence[Key]:
    """Return which of `ready` go into one request: one group's, or all that are in no group.

    Args:
        groups: those that must not go together, the oldest first.
        ready: what could be sent, in the order of sending.
        number: of the request; by turns, those without a group come first, and those with one.
    """
    if not groups:
        return ready
    grouped = frozenset(key for group in groups for key in group)
    free = [key for key in ready if key not in grouped]
    first = next((mine for group in groups if (mine := [key for key in ready if key in group])), [])
    return (free or first) if number % 2 else (first or free)
