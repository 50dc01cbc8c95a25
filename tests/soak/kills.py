"""Processes killed at random and started again soon, one after another and at once."""

from __future__ import annotations

import asyncio
import time
from random import Random

from tests.soak.fleet import Fleet

KINDS = {"engine": 9, "sidecar": 9, "nats": 3}
"""What is killed, and how often relative to each other."""
LONGEST_PAUSE_S = 4.0
LONGEST_DOWN_S = 3.0


class Kills:
    """The kills of one soak; `log` says what happened, one line each."""

    def __init__(self, seed: int, fleet: Fleet) -> None:
        self.log: list[str] = []
        self.counts = dict.fromkeys(KINDS, 0)
        self._random = Random(f"{seed} kills")
        self._fleet = fleet
        self._began = time.monotonic()

    async def run(self, duration_s: float) -> None:
        """Kill for so long, each kind at least once; return when all that was killed has been started."""
        first = list(KINDS)
        self._random.shuffle(first)
        end = time.monotonic() + duration_s
        async with asyncio.TaskGroup() as group:
            while first or time.monotonic() < end:
                await asyncio.sleep(self._random.uniform(0.1, LONGEST_PAUSE_S))
                kind = first.pop() if first else self._random.choices(*zip(*KINDS.items(), strict=True))[0]
                running = self._fleet.running(kind)
                if running:
                    name = self._random.choice(running)
                    down_s = self._random.uniform(0.0, LONGEST_DOWN_S)
                    self.counts[kind] += 1
                    self._say(f"{name} killed, for {down_s:.2f} s")
                    await self._fleet.kill(name)
                    group.create_task(self._start(name, down_s))

    async def _start(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._fleet.start(name)
        self._say(f"{name} started")

    def _say(self, what: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:7.2f} s  {what}")
