"""Ends the processes of an `up` that was killed and could not stop them itself.

A program of its own, run by its path because it is to start fast: the standard library alone. Its standard
input is a pipe that only `up` holds open, so its end is the end of `up`, however that came about. What is
listed in the processes file then is ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

POLL_S: Final = 0.05


def main(processes: Path, stop_limit_s: float) -> None:
    """Wait for the end of `up`, then end what the file lists: SIGTERM, and SIGKILL after the limit."""
    sys.stdin.buffer.read()
    left = _listed(processes)
    for pid in left:
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + stop_limit_s
    while (left := [pid for pid in left if _signal(pid, 0)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for pid in left:
        _signal(pid, signal.SIGKILL)


def _listed(processes: Path) -> list[int]:
    try:
        return [process["pid"] for process in json.loads(processes.read_text()).values()]
    except FileNotFoundError:
        return []


def _signal(pid: int, number: int) -> bool:
    """Signal 0 only asks whether the process is there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
