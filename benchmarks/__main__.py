"""Runs measurements one after the other: `make bench`, or some of them, `make bench ARGS="index lookup"`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUFFIX = "_bench"
NAMES = sorted(path.stem.removesuffix(SUFFIX) for path in Path(__file__).parent.glob(f"*{SUFFIX}.py"))


def main() -> int:
    wanted = sys.argv[1:] or NAMES
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"no measurement is called {', '.join(unknown)}; there are: {', '.join(NAMES)}")
        return 2
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}{SUFFIX}"]
        if subprocess.run(command, check=False).returncode:  # noqa: S603
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
