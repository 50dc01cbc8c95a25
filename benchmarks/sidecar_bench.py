"""What a sidecar takes at 20,000 blocks a second: `python -m benchmarks.sidecar_bench`.

A real sidecar on a core of its own reads an engine's socket; a real indexer folds what it reports. The
engine publishes a message each scheduler step of 10 ms, with the blocks of a few requests, and evicts as
many blocks once its cache is full. Whether nothing was lost the index says at the end: it must hold what
the engine does.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Final

import numpy as np
import uvloop

from benchmarks.dataplane_bench import TOKENS, start_sidecar
from benchmarks.figures import hand_in
from benchmarks.programs import (
    Program,
    core_seconds,
    end_all,
    kept_to,
    measured_core,
    memory,
    other_cores,
    pin,
)
from inferencecache.cli.stack.ports import Ports
from inferencecache.simengine.cache import Stored
from inferencecache.simengine.events import BlocksRemoved, BlocksStored, Event
from inferencecache.simengine.publisher import EventPublisher
from inferencecache.simengine.vllm_form import VllmForm
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

BLOCKS_A_SECOND: Final = 20_000
STEP_S: Final = 0.01
RUNS_A_STEP: Final = 4
CACHE_BLOCKS: Final = 90_000
SECONDS: Final = 15.0


class Engine:
    """Stores what nobody has stored, and evicts the oldest when it is full."""

    def __init__(self, publisher: EventPublisher, blocks_a_step: int, cache_blocks: int) -> None:
        self._publisher = publisher
        self._blocks = blocks_a_step // RUNS_A_STEP
        self._cache_runs = cache_blocks // self._blocks
        self._held: deque[tuple[bytes, ...]] = deque()
        self._rng = np.random.default_rng(1)
        self.stored = 0

    @property
    def held(self) -> int:
        """Blocks."""
        return len(self._held) * self._blocks

    @property
    def is_full(self) -> bool:
        return len(self._held) == self._cache_runs

    def step(self) -> None:
        """One message."""
        events: list[Event] = []
        for _ in range(RUNS_A_STEP):
            if self.is_full:
                events.append(BlocksRemoved(self._held.popleft()))
            hashes = tuple(self._rng.bytes(32) for _ in range(self._blocks))
            tokens = tuple(self._rng.integers(0, 150_000, self._blocks * TOKENS).tolist())
            events.append(BlocksStored(Stored(hashes, None, tokens)))
            self._held.append(hashes)
        self._publisher.publish(events)
        self.stored += self._blocks * RUNS_A_STEP


async def run(blocks_a_second: int, cache_blocks: int, seconds: float) -> dict[str, float]:
    """All figures."""
    ports = Ports(well_known=False)
    with tempfile.TemporaryDirectory() as name, kept_to(other_cores()), NatsServer(Path(name)) as server:
        folder = Path(name)
        sockets = [f"tcp://127.0.0.1:{ports.take(0)}" for _ in range(2)]
        publisher = EventPublisher(*sockets, form=VllmForm(TOKENS))
        publisher.start()
        programs = [Program("indexer", server.url, folder / "indexer.log")]
        try:
            indexer = await programs[0].until_ready()
            programs.append(start_sidecar(server.url, folder, *sockets))
            sidecar = await programs[1].until_ready()
            pin(sidecar.pid, measured_core())
            engine = Engine(publisher, round(blocks_a_second * STEP_S), cache_blocks)
            due_s = time.monotonic()

            async def step() -> None:
                nonlocal due_s
                engine.step()
                due_s += STEP_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))

            while not engine.is_full:
                await step()
            cpu_s, began_s, stored = core_seconds(sidecar.pid), time.monotonic(), engine.stored
            while time.monotonic() < began_s + seconds:
                await step()
            took_s = time.monotonic() - began_s
            cpu_s = core_seconds(sidecar.pid) - cpu_s
            resident = memory(sidecar.pid)
            await eventually(
                lambda: indexer.metric("inferencecache_index_entries") == engine.held,
                within_s=60,
                what=f"an index of {engine.held} blocks",
            )
        finally:
            end_all(programs)
            await publisher.close()
    return {
        "share of a core": cpu_s / took_s,
        "processor time a block stored and one evicted, us": cpu_s / (engine.stored - stored) * 1e6,
        "blocks a second": (engine.stored - stored) / took_s,
        "resident, MiB": resident.resident,
        "resident at most, MiB": resident.most,
        "of it code and libraries, MiB": resident.files,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=BLOCKS_A_SECOND, help="stored a second, and evicted")
    parser.add_argument("--cache", type=int, default=CACHE_BLOCKS, help="blocks that the engine holds")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    figures = uvloop.run(run(arguments.blocks, arguments.cache, arguments.seconds))
    hand_in(figures)
    for name, figure in figures.items():
        print(f"{name:>50} {figure:10.2f}")


if __name__ == "__main__":
    main()
