"""Which attempts go together after a request that got no answer: halves, by turns with the others (A-37)."""

from __future__ import annotations

from stateous_supervisor.agent import halving

KEYS = [(task, 1) for task in range(1, 9)]


def rounds(blamed: set[halving.Key]) -> tuple[list[list[halving.Key]], set[halving.Key]]:
    """Send everything, with no answer where one that is blamed is in it; return what was sent and what is alone."""
    left, alone = list(KEYS), set[halving.Key]()
    sent: list[list[halving.Key]] = []
    groups: halving.Groups = ()
    while left:
        chosen = list(halving.turn(groups, left, len(sent)))
        sent.append(chosen)
        if blamed.isdisjoint(chosen):
            groups = halving.without(groups, chosen)
        elif len(chosen) > 1:
            groups = halving.split(groups, chosen)
            continue
        else:
            groups = halving.without(groups, chosen)
            alone.update(chosen)
        left = [key for key in left if key not in chosen]
    assert groups == ()
    return sent, alone


def test_the_one_to_blame_is_alone_after_halving_and_the_rest_has_arrived_a_37() -> None:
    for key in KEYS:
        sent, alone = rounds({key})

        assert alone == {key}
        assert len(sent) == 7


def test_several_to_blame_are_found_each_a_37() -> None:
    _, alone = rounds({KEYS[0], KEYS[5], KEYS[6]})

    assert alone == {KEYS[0], KEYS[5], KEYS[6]}


def test_what_is_in_no_group_goes_by_turns_with_the_groups() -> None:
    groups = (((1, 1),), ((2, 1),))
    ready = [(1, 1), (2, 1), (3, 1)]

    assert halving.turn(groups, ready, 1) == [(3, 1)]
    assert halving.turn(groups, ready, 2) == [(1, 1)]
    assert halving.turn(groups, [(2, 1)], 1) == [(2, 1)]
    assert halving.turn((), ready, 1) == ready


def test_an_attempt_that_is_gone_leaves_its_group() -> None:
    assert halving.kept((((1, 1), (2, 1)), ((3, 1),)), {(2, 1)}) == (((2, 1),),)
