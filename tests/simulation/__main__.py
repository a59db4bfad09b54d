"""`make simulate`: HOURS of simulated hours from a random seed on, or with SEED exactly one life."""

from __future__ import annotations

import argparse
import random
import sys

from .play import Failed, one, play


def main() -> int:
    words = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    words.add_argument("--hours", type=float, default=1_000.0, help="simulated hours in all")
    words.add_argument("--seed", type=int, help="play exactly this life")
    words.add_argument(
        "--baseline", action="store_true", help="with --seed: a control plane without extensions"
    )
    words.add_argument("--first", type=int, help="the first seed; random if not given")
    given = words.parse_args()
    try:
        if given.seed is not None:
            life = one(given.seed, is_baseline=given.baseline)
            print(
                f"seed {given.seed}: {life.hours:.1f} h, {life.history.faults.total()} faults, no rule was broken"
            )
            return 0
        first = (
            given.first
            if given.first is not None
            else random.SystemRandom().randrange(1_000_000, 1_000_000_000)
        )
        print(f"seeds from {first} on", flush=True)
        play(given.hours, first)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
