"""Carry out the plans of many seeds on a simulated installation, and demand what must hold.

    python -m tools.simulate --seeds 20000
    python -m tools.simulate --seed 165            the plan, what processes log, the verdict
    python -m tools.simulate --seed 165 --shorten  the few steps of it that matter

A failing seed is printed with the shortest plan that fails in the same way.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.simulation.campaign import shorten, trace, try_seeds
from tests.simulation.plan import draw

MOST_SHORTENED = 5
"""So many failing seeds are shortened; that takes a while each."""
SHOW_EVERY_S = 10.0


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="this one alone, with what happens in it")
    parser.add_argument("--shorten", action="store_true", help="with --seed: leave out what does not matter")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default %(default)s)"
    )
    arguments = parser.parse_args(given)
    if arguments.seed is not None:
        return _one(arguments.seed, is_shortened=arguments.shorten)
    return _many(range(arguments.first, arguments.first + arguments.seeds), arguments.workers)


def _one(seed: int, *, is_shortened: bool) -> int:
    plan = shorten(seed).plan if is_shortened else draw(seed)
    verdict = trace(plan)
    print(plan)
    print(verdict.violation or f"all is well, settled after {verdict.settled_s:.1f} s")
    return 1 if verdict.violation else 0


def _many(seeds: range, workers: int) -> int:
    started = shown = time.monotonic()
    failing: list[int] = []
    slowest = 0.0
    done = 0
    for seed, verdict in try_seeds(seeds, workers=workers):
        done += 1
        slowest = max(slowest, verdict.settled_s)
        if verdict.violation:
            failing.append(seed)
            print(f"seed {seed}: {verdict.violation}", flush=True)
        if time.monotonic() - shown > SHOW_EVERY_S:
            shown = time.monotonic()
            rate = done / (shown - started)
            print(f"{done} of {len(seeds)} seeds, {rate:.0f}/s, {len(failing)} failing", flush=True)
    print(
        f"{done} seeds, {len(failing)} failing, {time.monotonic() - started:.0f} s; "
        f"the slowest settled {slowest:.1f} s after its faults"
    )
    for seed in sorted(failing)[:MOST_SHORTENED]:
        plan, verdict = shorten(seed)
        print(
            f"\n{plan}\n=> {verdict.violation}\n(python -m tools.simulate --seed {seed} --shorten)",
            flush=True,
        )
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
