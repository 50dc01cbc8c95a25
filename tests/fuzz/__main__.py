"""`python -m tests.fuzz [TARGET ...] --seconds N --seed S`, or `TARGET --input HEX`."""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.fuzz.campaign import NAMES, FuzzFailureError, load, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="run fuzz targets")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default all: {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each target runs, default 60")
    parser.add_argument("--seed", type=int, help="decides all inputs; default a new one")
    parser.add_argument(
        "--input", type=bytes.fromhex, metavar="HEX", help="run this one input and nothing else"
    )
    arguments = parser.parse_args()
    names = arguments.targets or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no target is called {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    if arguments.input is not None:
        for name in names:
            target = load(name)
            try:
                target.run(arguments.input)
            finally:
                target.close()
        return 0
    seed = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
    failed = 0
    for name in names:
        try:
            inputs = run(name, seed, arguments.seconds)
            print(f"{name}: {inputs} inputs, nothing found (seed {seed})", flush=True)
        except FuzzFailureError as failure:
            failed += 1
            print(f"{name}: FAILED\n{failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
