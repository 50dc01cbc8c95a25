"""How long after an engine's event a router's answers show it.

A prompt that nobody has sent before goes to an engine as any request does; then every router is
asked until it answers with a prefix match on that engine. The clock starts at the time that the
engine's event carries, so the delay covers engine socket, sidecar, log, indexer, delta and router.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

from inferencecache.cli.load.choice import Pool
from inferencecache.cli.load.engines import EngineFailedError, Engines
from inferencecache.cli.load.figures import Figures
from inferencecache.cli.load.hints import Router

INTERVAL_S: Final = 0.5
LIMIT_S: Final = 2.0
ASK_AGAIN_S: Final = 0.002
ASK_AGAIN_GROWTH: Final = 1.2
"""Questions come close together at first, so that short delays are measured well."""
PROBE_TOKENS: Final = 97
"""Six blocks of 16 and the token that is always computed: above the least match that counts, 64."""


class Probe:
    """Repeats the measurement; its prompts are the same for both groups and count in no share."""

    def __init__(
        self,
        engines: Engines,
        hinted: Pool,
        control: Pool,
        routers: Sequence[Router],
        figures: Figures,
        seed: int,
    ) -> None:
        self._engines = engines
        self._hinted = hinted
        self._control = control
        self._routers = routers
        self._figures = figures
        self._rng = random.Random(f"{seed}/probe")

    async def run(self) -> None:
        """Measure at each interval, until cancelled."""
        while True:
            await self._measure()
            await asyncio.sleep(INTERVAL_S)

    async def _measure(self) -> None:
        prompt = [self._rng.randrange(32_000, 64_000) for _ in range(PROBE_TOKENS)]
        hint = await self._routers[0].lookup(prompt)
        engine = self._hinted.choose(hint)
        try:
            with self._hinted.in_flight(engine):
                completion = await self._engines.complete(engine, prompt, 1)
        except EngineFailedError:
            return
        seen = await asyncio.gather(
            *(self._await_visible(router, prompt, engine.replica) for router in self._routers)
        )
        for router, seen_at in zip(self._routers, seen, strict=True):
            if seen_at is None:
                self._figures.never_visible += 1
            else:
                self._figures.visible_s[router.name].append(seen_at - completion.stored_at)
        if self._control.engines:
            await self._mirror(prompt)

    async def _mirror(self, prompt: Sequence[int]) -> None:
        """The control group carries the same extra load."""
        try:
            await self._engines.complete(self._control.round_robin(), prompt, 1)
        except EngineFailedError:
            return

    async def _await_visible(self, router: Router, prompt: Sequence[int], replica: str) -> float | None:
        """Unix time of the first answer that shows it; None when none does within the limit."""
        deadline = time.monotonic() + LIMIT_S
        pause_s = ASK_AGAIN_S
        while time.monotonic() < deadline:
            hint = await router.lookup(prompt)
            if hint.reason == "PREFIX_MATCH" and replica in hint.replicas:
                return time.time()
            await asyncio.sleep(pause_s)
            pause_s *= ASK_AGAIN_GROWTH
        return None
