"""Seeded random load: prompts that share beginnings, more of them than the engines have room for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random

import aiohttp

from inferencecache.cli.stack.plan import EngineAddress
from tests.support.fleet.processes import BLOCK_SIZE
from tests.support.waiting import set_within

LONGEST_PAUSE_S = 0.4
SHARED = 8
REPEATED = 0.2
VOCABULARY = 50_000


class Load:
    """Clients that ask random engines until `end`. What an engine that dies owes is forgotten.

    A part `resets` of what they do is to clear an engine's whole cache.
    """

    def __init__(
        self,
        seed: int,
        engines: Sequence[EngineAddress],
        http: aiohttp.ClientSession,
        *,
        clients: int = 8,
        resets: float = 0.005,
    ) -> None:
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self.answered = 0
        self.recent: list[list[int]] = []
        """Prompts that were asked lately, the newest last."""
        self._seed = seed
        self._engines = engines
        self._http = http
        self._clients = clients
        self._resets = resets
        random = Random(seed)
        self._shared = [tokens(random, random.randint(3, 8)) for _ in range(SHARED)]

    async def run(self) -> None:
        clients = range(self._clients)
        try:
            await asyncio.gather(*(self._client(Random(f"{self._seed} {number}")) for number in clients))
        finally:
            self._ended.set()

    async def end(self) -> None:
        """Ask no more, and return once all that was asked is answered."""
        self._stop.set()
        await self._ended.wait()

    async def _client(self, random: Random) -> None:
        while not self._stop.is_set():
            engine = random.choice(self._engines)
            body = {"prompt": self._prompt(random), "max_tokens": random.randint(1, 3 * BLOCK_SIZE)}
            with suppress(OSError, TimeoutError, aiohttp.ClientError):
                if random.random() < self._resets:
                    await self._post(f"{engine.url}/reset_prefix_cache")
                else:
                    self.answered += await self._post(f"{engine.url}/v1/completions", body) == 200
            await set_within(self._stop, random.uniform(0.0, LONGEST_PAUSE_S))

    async def _post(self, url: str, body: object = None) -> int:
        async with self._http.post(url, json=body) as answer:
            await answer.read()
            return answer.status

    def _prompt(self, random: Random) -> list[int]:
        if self.recent and random.random() < REPEATED:
            return random.choice(self.recent)
        tail = tokens(random, random.randint(0, 6))
        prompt = random.choice(self._shared) + tail + tail[: random.randrange(BLOCK_SIZE)] + [1]
        self.recent = [*self.recent[-20:], prompt]
        return prompt


@asynccontextmanager
async def under(load: Load) -> AsyncIterator[None]:
    """Load inside the block; at its end what was asked is answered."""
    loading = asyncio.create_task(load.run())
    try:
        yield
    finally:
        await load.end()
        await loading


def tokens(random: Random, blocks: int) -> list[int]:
    """Tokens of so many random blocks."""
    return [random.randrange(VOCABULARY) for _ in range(blocks * BLOCK_SIZE)]
