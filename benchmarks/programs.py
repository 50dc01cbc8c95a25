"""The product's processes as measurements run them: started, pinned to cores, watched from outside.

Processor time and memory are those of the whole process, all threads and the kernel's part included, as the
operating system counts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from inferencecache.cli.stack.ports import Ports
from tests.support.waiting import eventually

MIB: Final = 1024 * 1024
READY_LIMIT_S: Final = 600.0
CORES: Final = sorted(os.sched_getaffinity(0))
"""Those that this process might use when it began."""


class Memory(NamedTuple):
    """MiB: resident now and at most; of it the process's own (heap, arrays) and what maps files (code)."""

    resident: float
    most: float
    own: float
    files: float


def core_seconds(pid: int) -> float:
    """Processor time that a process has used, in its own time and the kernel's."""
    try:
        # The number of the processor-time clock of another process, as Linux makes it of its id.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int | str = "self") -> Memory:
    """What a process takes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in lines)
        if "kB" in rest
    }
    return Memory(*(kib[name] / 1024 for name in ("VmRSS", "VmHWM", "RssAnon", "RssFile")))


def measured_core() -> set[int]:
    """The core for the one process that is measured."""
    return {CORES[0]}


def other_cores() -> set[int]:
    """Those for everything else; the same on a machine that has a single one."""
    return set(CORES[1:] or CORES)


def pin(pid: int, to: set[int]) -> None:
    """Let all threads of a process run on these cores alone."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), to)


@contextmanager
def kept_to(to: set[int]) -> Iterator[None]:
    """This process, and what it starts meanwhile, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, to)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Program:
    """A running indexer or router; `on` are the cores that it is kept to."""

    def __init__(self, module: str, url: str, log: Path, *flags: str, on: set[int] | None = None) -> None:
        self.log = log
        self._http = f"http://127.0.0.1:{Ports(well_known=False).take(0)}"
        address = self._http.removeprefix("http://")
        command = [sys.executable, "-m", f"inferencecache.{module}", "--nats-url", url, "--insecure-nats"]
        health = "--health-address" if module == "kvevent_subscriber" else "--http-bind-address"
        with log.open("wb") as output, kept_to(on or os.sched_getaffinity(0)):
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [*command, health, address, *flags], stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ready(self) -> bool:
        """Does it say so?"""
        try:
            return self._get("/readyz").startswith("ok")
        except OSError:
            if self.process.poll() is not None:
                raise RuntimeError(f"the process has ended:\n{self.log.read_text()[-2000:]}") from None
            return False

    async def until_ready(self) -> Self:
        """Wait until it says so."""
        await eventually(lambda: self.ready, within_s=READY_LIMIT_S, what=f"readiness of {self.log.stem}")
        return self

    def metric(self, name: str) -> float:
        """The sum of a metric's series."""
        lines = [
            line for line in self._get("/metrics").splitlines() if line.startswith((f"{name}{{", f"{name} "))
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    @property
    def entries(self) -> int:
        """Distinct prefixes of a router's view."""
        return round(self.metric("inferencecache_router_view_entries"))

    def end(self) -> None:
        """Stop it and wait."""
        self.process.terminate()
        self.process.wait()

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self._http + path, timeout=5) as answer:  # noqa: S310 - our own process
            text: str = answer.read().decode()
            return text


def end_all(programs: Sequence[Program]) -> None:
    """Stop those that run."""
    for program in programs:
        if program.process.poll() is None:
            program.end()
