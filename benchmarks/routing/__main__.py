"""`make bench-routing`: replay the traces, print the figures, keep them as JSON and as a picture."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

import msgspec
import uvloop

from benchmarks.routing.figures import CaseFigures, RunFigures
from benchmarks.routing.plot import draw
from benchmarks.routing.publishing import Statistics
from benchmarks.routing.replay import Conditions, Fleet, replay
from benchmarks.routing.report import bars, conditions, table
from benchmarks.routing.stack import INDEXERS, ROUTERS
from benchmarks.routing.trace import load
from inferencecache.core.service import duration

CASES: Final = {
    "conversation": ("conversation", Fleet(8, 5000, 8000)),
    "synthetic": ("synthetic", Fleet(8, 2500, 8000)),
    "conversation-16": ("conversation", Fleet(16, 2500, 6000)),
}
"""Traces and fleets of the design's table; the last is run when it is named."""
USUAL: Final = ("conversation", "synthetic")
FASTEST: Final = 10.0


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; by default {' and '.join(USUAL)}")
    parser.add_argument(
        "--slice",
        type=duration,
        default=duration(os.environ.get("SLICE") or "0s"),
        help="only the beginning of each trace, as in 10m; by default SLICE, else everything",
    )
    parser.add_argument("--speed", type=_speed, default=FASTEST, help="how many times as fast, at most 10")
    parser.add_argument(
        "--arrivals",
        choices=("spread", "rounded"),
        default="spread",
        help="requests of one time spread until the next, or all at once",
    )
    parser.add_argument("--statistics", choices=get_args(Statistics), default="fresh")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(os.environ["BENCH_OUT"]) if os.environ.get("BENCH_OUT") else None,
        help="where the figures go as JSON, with a picture beside; by default BENCH_OUT",
    )
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(CASES)}")
    began = time.monotonic()
    cases = tuple(_run(name, args) for name in args.cases or USUAL)
    run = RunFigures(
        taken=datetime.now(UTC).strftime("%Y-%m-%d"),
        speed=args.speed,
        slice_s=args.slice,
        arrivals=args.arrivals,
        statistics=args.statistics,
        routers=ROUTERS,
        indexers=INDEXERS,
        took_s=round(time.monotonic() - began, 1),
        cases=cases,
    )
    if args.out is not None:
        args.out.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
        draw(run, args.out.with_suffix(".png"))
    print(table(run), bars(run), conditions(run), sep="\n\n")
    return 0


def _run(name: str, args: argparse.Namespace) -> CaseFigures:
    trace_name, fleet = CASES[name]
    trace = load(trace_name)
    if args.arrivals == "spread":
        trace = trace.spread()
    if args.slice:
        trace = trace.slice(args.slice)
    minutes = trace.span_s / args.speed / 60
    print(
        f"{name}: {len(trace.requests)} requests of the {trace.source} trace, about {minutes:.1f} minutes",
        file=sys.stderr,
        flush=True,
    )
    return uvloop.run(replay(trace, fleet, Conditions(args.speed, args.statistics)))


def _speed(text: str) -> float:
    speed = float(text)
    if not 0 < speed <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {FASTEST:g}")
    return speed


if __name__ == "__main__":
    sys.exit(main())
