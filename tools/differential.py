"""Fold random logs by the model and by the product until they differ or `--ops` steps are done.

    python -m tools.differential --ops 1000000 --seed 7

Each trial is a log of its own, drawn from the seed and the trial's number. A difference is cut down to
a script of few steps, which is printed and, with `--script`, written to a file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

from tests.oracle.random_log import Mix
from tests.oracle.tight import tight
from tests.oracle.trial import DifferenceError, Step, random_steps, run, shortest

TRIAL_STEPS = 500
SCRIPT = '''"""{reason}"""

from inferencecache.core.index.fold import LogMessage
from inferencecache.schemas.deltas import *
from inferencecache.schemas.policy import *
from inferencecache.schemas.positions import *
from inferencecache.schemas.records import *
from inferencecache.schemas.senders import *
from tests.oracle.routing import Question
from tests.oracle.tight import tight
from tests.oracle.trial import *

nan, inf = float("nan"), float("inf")

with tight({is_tight}):
    run([
{steps}
    ])
'''


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ops", type=int, default=100_000, help="steps in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn and printed")
    parser.add_argument(
        "--script", type=Path, default=None, help="where to write a script that shows a difference"
    )
    arguments = parser.parse_args(given)
    seed = arguments.seed if arguments.seed is not None else Random().randrange(2**32)  # noqa: S311
    print(f"seed {seed}", flush=True)
    started = shown = time.monotonic()
    done = trial = 0
    while done < arguments.ops:
        is_tight = trial % 2 == 1
        steps = list(islice(trial_steps(seed, trial), min(TRIAL_STEPS, arguments.ops - done)))
        try:
            with tight(is_tight):
                run(steps)
        except DifferenceError as error:
            print(f"trial {trial}: {error}; shortening", flush=True)
            with tight(is_tight):
                report(error.steps, is_tight, arguments.script)
            return 1
        done += len(steps)
        trial += 1
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(f"{done} of {arguments.ops} steps, {done / (shown - started):.0f}/s", flush=True)
    print(f"no difference in {done} steps, {time.monotonic() - started:.0f} s")
    return 0


def trial_steps(seed: int, trial: int) -> Iterator[Step]:
    """The steps of one trial; most leave something out, so that other paths get longer."""
    random = Random(f"{seed}/{trial}")  # noqa: S311 - makes inputs, not secrets
    mix = Mix(
        grpc=random.random() < 0.8,
        evictions=random.random() < 0.7,
        epochs=random.random() < 0.5,
        departures=random.random() < 0.7,
        wild_clocks=random.random() < 0.7,
        wide=random.random() < 0.05,
    )
    return random_steps(random, mix)


def report(failing: list[Step], is_tight: bool, path: Path | None) -> None:
    """Print, and write, a script of the fewest steps."""
    steps = shortest(failing)
    try:
        run(steps)
        reason = "it does not happen again"
    except DifferenceError as error:
        reason = error.reason
    script = SCRIPT.format(
        reason=reason, is_tight=is_tight, steps="\n".join(f"        {step!r}," for step in steps)
    )
    print(script)
    if path is not None:
        path.write_text(script)
        print(f"written to {path}; run it from the root of the repository")


if __name__ == "__main__":
    sys.exit(main())
