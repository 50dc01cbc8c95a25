"""Many seeds on all processors, and the shortest plan that fails as a failing one does.

Everything runs in processes of its own: a simulation replaces clocks, and repeats itself only where
strings have the same hashes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from multiprocessing import get_context
from typing import Final, NamedTuple

import msgspec

from tests.simulation.plan import FAULTS, Plan, draw
from tests.simulation.run import Verdict, simulate
from tests.support.fewest import fewest

_AT_ONCE: Final = 20
"""Seeds that a process takes at a time; between them it collects its garbage."""

Mutate = Callable[[], AbstractContextManager[object]]


class Tried(NamedTuple):
    """What came of one seed."""

    seed: int
    verdict: Verdict


class Shortened(NamedTuple):
    """The few steps of a failing plan that matter, and what they lead to."""

    plan: Plan
    verdict: Verdict


def try_seeds(
    seeds: Sequence[int],
    *,
    workers: int,
    faults: Sequence[str] = tuple(FAULTS),
    mutate: Mutate | None = None,
) -> Generator[Tried, None, None]:
    """Try seeds with `faults`, in any order. `mutate`, a function at the top of a module, changes the
    product meanwhile.
    """
    with _pool(workers) as pool:
        parts = [seeds[at : at + _AT_ONCE] for at in range(0, len(seeds), _AT_ONCE)]
        running = [pool.submit(_try_some, part, faults, mutate) for part in parts]
        try:
            for done in as_completed(running):
                yield from done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def shorten(seed: int) -> Shortened:
    """What is left of a seed's plan when no step can be left out any more."""
    with _pool(1) as pool:
        return pool.submit(_shorten, seed).result()


def trace(plan: Plan) -> Verdict:
    """Carry out one plan and print what its processes log."""
    with _pool(1) as pool:
        return pool.submit(_trace, plan).result()


def _pool(workers: int) -> ProcessPoolExecutor:
    os.environ["PYTHONHASHSEED"] = "0"  # what the new processes begin with
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


def _try_some(seeds: Sequence[int], faults: Sequence[str], mutate: Mutate | None) -> list[Tried]:
    tried = [
        Tried(seed, simulate(draw(seed, faults), mutation=mutate() if mutate else None)) for seed in seeds
    ]
    gc.collect()
    return tried


def _shorten(seed: int) -> Shortened:
    plan = draw(seed)
    verdict = simulate(plan)

    def fails(steps: Sequence[object]) -> bool:
        shorter = msgspec.structs.replace(plan, steps=list(steps))
        gc.collect()
        return simulate(shorter).kind == verdict.kind

    if verdict.violation:
        plan = msgspec.structs.replace(plan, steps=fewest(plan.steps, fails))
    return Shortened(plan, simulate(plan))


def _trace(plan: Plan) -> Verdict:
    return simulate(plan, log_line=lambda at_s, text: print(f"{at_s:9.4f} s  {text}", flush=True))  # noqa: T201
