"""Runs measurements one after the other: `make bench`, or some of them, `make bench ARGS="index lookup"`.

At the end stands every figure that has a target beside it. `BENCH_OUT` names a file that gets all figures as
JSON. The exit code says whether everything ran, not what was reached: that depends on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import FILE_VARIABLE, read_figures
from benchmarks.summary import document, judge, table, write
from benchmarks.targets import TARGETS

SUFFIX = "_bench"
NAMES = sorted(path.stem.removesuffix(SUFFIX) for path in Path(__file__).parent.glob(f"*{SUFFIX}.py"))


def main() -> int:
    wanted = sys.argv[1:] or NAMES
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"no measurement is called {', '.join(unknown)}; there are: {', '.join(NAMES)}")
        return 2
    failed = []
    measured: dict[str, dict[str, float]] = {}
    took_s: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name in wanted:
            print(f"== {name}", flush=True)
            figures = Path(folder, name)
            began = time.monotonic()
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", f"benchmarks.{name}{SUFFIX}"],
                check=False,
                env=os.environ | {FILE_VARIABLE: str(figures)},
            )
            took_s[name] = round(time.monotonic() - began, 1)
            measured[name] = read_figures(figures)
            if done.returncode:
                failed.append(name)
    outcomes = judge([each for each in TARGETS if each.bench in wanted], measured)
    print("\n" + table(outcomes))
    print("took:", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took_s.items()))
    if out := os.environ.get("BENCH_OUT"):
        write(Path(out), document(outcomes, measured, took_s, failed))
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
