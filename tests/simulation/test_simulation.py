"""The agent's loops keep their promises through hours of faults, and a broken agent is found out.

A-11, A-12, A-27, A-28, A-33, A-35, A-36, A-37, A-43, A-44, A-46, A-53, A-55; the invariants of the whole.
"""

from __future__ import annotations

import pytest

from simulation import mutants
from simulation.history import Broken
from simulation.life import Life, Mutant
from simulation.play import play

HOURS, FAULTS, FIRST_SEED = 200.0, 20_000, 1


@pytest.mark.timeout(600)
def test_two_hundred_hours_and_twenty_thousand_faults_break_no_rule() -> None:
    count = play(HOURS, FIRST_SEED)

    assert count.hours >= HOURS
    assert count.faults.total() >= FAULTS
    assert 0.01 <= count.baseline_hours / count.hours <= 0.04
    assert len(count.faults) >= 25, "every kind of fault happened"


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (mutants.beats_on_the_routines_loop, "A-27"),
        (mutants.a_new_id_for_each_try, "A-11"),
        (mutants.sent_before_it_is_on_disk, "A-35"),
        (mutants.asks_for_too_much_of_a_state, "A-12"),
        (mutants.sleeps_on, "A-33"),
        (mutants.says_it_in_other_words, "A-37"),
    ],
)
def test_a_broken_agent_is_found_within_a_few_lives(mutant: Mutant, rule: str) -> None:
    found = (broken.rule for seed in range(1, 21) for broken in rules_broken(seed, mutant))

    assert rule in found


@pytest.mark.parametrize("is_baseline", [False, True])
def test_the_same_seed_gives_the_same_history(is_baseline: bool) -> None:
    first, second = (lines(Life(3, is_baseline=is_baseline, limit_s=2_000.0)) for _ in range(2))

    assert len(first) > 100
    assert first == second


def rules_broken(seed: int, mutant: Mutant) -> list[Broken]:
    life = Life(seed, mutant=mutant, limit_s=10_800.0)
    try:
        life.run()
    except Broken:
        return life.history.broken[:1]
    return []


def lines(life: Life) -> list[object]:
    life.run()
    return list(life.history.lines)
