"""What an indexer and a router take with a million entries, and where it goes: `python -m
benchmarks.memory_bench`.

Both are real processes. They are looked at when they are ready and hold nothing, and again when they hold a
million entries; the router is started anew then, so that it loads snapshots as routers do. What a process
takes before it holds anything is taken apart by importing its parts one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.cold_router_bench import PARTITIONS, snapshot
from benchmarks.figures import hand_in
from benchmarks.million import ENTRIES, chains, fill, until_seen
from benchmarks.programs import MIB, Memory, Program, end_all, memory
from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings
from tests.support.nats import NatsServer

COMMON: Final = ("numpy", "numba", "inferencecache.core.index.kernels", "nats")
LADDER: Final = {
    "indexer": (*COMMON, "inferencecache.indexer.serve"),
    "router": (*COMMON, "grpc", "inferencecache.router.serve"),
}
_CLIMB: Final = """\
import importlib, json, sys
from pathlib import Path
def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))
steps = [("python", resident())]
for name in sys.argv[1:]:
    importlib.import_module(name)
    steps.append((name, resident()))
print(json.dumps(steps))
"""


def imports(role: str) -> dict[str, float]:
    """MiB that each import adds, in order."""
    command = [sys.executable, "-c", _CLIMB, *LADDER[role]]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    steps, before = {}, 0.0
    for name, resident in json.loads(done.stdout):
        steps[name] = resident - before
        before = resident
    return steps


async def run(entries: int) -> dict[str, float]:
    """All figures."""
    all_chains = chains(entries)
    grpc = ("--grpc-bind-address", "127.0.0.1:0")
    with tempfile.TemporaryDirectory() as name, NatsServer(Path(name)) as server:
        folder = Path(name)
        log = await Log.connect(NatsSettings(server.url, insecure=True), name="bench", timeout_s=60)
        programs: list[Program] = []
        try:
            indexer = await _started("indexer", server.url, folder / "indexer.log", programs)
            router = await _started("router", server.url, folder / "empty-router.log", programs, *grpc)
            empty = {"indexer": memory(indexer.pid), "router": memory(router.pid)}
            router.end()
            await fill(log, all_chains)
            await until_seen(lambda: round(indexer.metric("inferencecache_index_entries")), all_chains)
            for number in PARTITIONS:
                await snapshot(log, number)
            router = await _started("router", server.url, folder / "router.log", programs, *grpc)
            await until_seen(lambda: router.entries, all_chains)
            full = {"indexer": memory(indexer.pid), "router": memory(router.pid)}
        finally:
            end_all(programs)
            await log.close()
    figures: dict[str, float] = {}
    for role in ("router", "indexer"):
        figures |= _figures(role, empty[role], full[role], entries)
    return figures


async def _started(module: str, url: str, log: Path, programs: list[Program], *flags: str) -> Program:
    programs.append(Program(module, url, log, "--log-level=warning", *flags))
    return await programs[-1].until_ready()


def _figures(role: str, empty: Memory, full: Memory, entries: int) -> dict[str, float]:
    return {
        f"{role}, resident, MiB": full.resident,
        f"{role}, resident at most, MiB": full.most,
        f"{role}, of it its own, MiB": full.own,
        f"{role}, of it code and libraries, MiB": full.files,
        f"{role}, without entries, MiB": empty.resident,
        f"{role}, bytes an entry": (full.resident - empty.resident) * MIB / entries,
        **{f"{role}, import {name}, MiB": value for name, value in imports(role).items()},
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=ENTRIES)
    arguments = parser.parse_args()
    figures = asyncio.run(run(arguments.entries))
    hand_in(figures)
    for name, figure in figures.items():
        print(f"{name:>60} {figure:8.1f}")


if __name__ == "__main__":
    main()
