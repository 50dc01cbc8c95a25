"""Look for inputs over which the product misbehaves, with every target of tests/fuzz or some of them.

    python -m tools.fuzz records snapshots --seconds 600 --seed 7
    python -m tools.fuzz records --input HEX

A failure prints the shortest input found for it, which `--input` runs again. The seed decides the inputs.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence

from tests.fuzz.campaign import NAMES, FuzzFailureError, load, run
from tools.arguments import positive


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: {' '.join(NAMES)}")
    parser.add_argument(
        "--seconds", type=positive, default=60.0, help="for each target (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=None, help="default: drawn and printed")
    parser.add_argument("--input", type=bytes.fromhex, metavar="HEX", help="run this one input and no other")
    arguments = parser.parse_args(given)
    names = arguments.targets or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no target is called {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    if arguments.input is not None:
        for name in names:
            _run_once(name, arguments.input)
        return 0
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(2**32)
    failed = 0
    for name in names:
        try:
            inputs = run(name, seed, arguments.seconds)
            print(f"{name}: nothing found in {inputs} inputs (seed {seed})", flush=True)
        except FuzzFailureError as failure:
            failed += 1
            print(f"{name}: FAILED\n{failure}", flush=True)
    return 1 if failed else 0


def _run_once(name: str, data: bytes) -> None:
    """Run an input in this process, so that a debugger can follow."""
    target = load(name)
    try:
        target.run(data)
        print(f"{name}: nothing wrong with this input")
    finally:
        target.close()


if __name__ == "__main__":
    sys.exit(main())
