"""Harm a whole fleet at random for some minutes, then check that everything is right again.

    python -m tools.chaos --minutes 10 --seed 7

What is done is told as it happens. A seed repeats the choice of faults, not how they meet in time. Exit
code 1 means that something was not right in the end; the fleet's logs are kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from inferencecache.core.service import configure_logging
from tests.support.fleet.campaign import ChaosFoundError, unleash
from tests.support.fleet.chaos import EVERYTHING
from tools import faketime
from tools.arguments import positive


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=positive, default=3.0, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn and printed")
    parser.add_argument("--engines", type=int, default=4, help="default %(default)s")
    arguments = parser.parse_args(given)
    configure_logging("text", "error")  # of the client that reads along
    seed = arguments.seed if arguments.seed is not None else Random().randrange(2**32)  # noqa: S311
    mix = dict(EVERYTHING)
    if not faketime.present():
        mix.pop("skew clock")
        print("clocks stay right: no libfaketime; run 'make faketime-assets'")
    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="inferencecache-chaos-"))
    try:
        outcome = asyncio.run(
            unleash(
                folder / "fleet",
                seed=seed,
                seconds=arguments.minutes * 60,
                mix=mix,
                engines=arguments.engines,
                say=lambda line: print(line, flush=True),
            )
        )
    except ChaosFoundError as error:
        print(error)
        return 1
    shutil.rmtree(folder)
    print(f"seed {seed}: {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
