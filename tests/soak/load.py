"""Seeded random load: prompts that share beginnings, more of them than the engines have room for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import aiohttp

from inferencecache.cli.stack.plan import EngineAddress
from tests.soak.fleet import BLOCK_SIZE

CLIENTS = 24
LONGEST_PAUSE_S = 0.4
SHARED = 8
REPEATED = 0.2
RESET = 0.005
VOCABULARY = 50_000


class Load:
    """Clients that ask random engines until `stop` is set. What an engine that dies owes is forgotten."""

    def __init__(self, seed: int, engines: Sequence[EngineAddress], http: aiohttp.ClientSession) -> None:
        self.stop = asyncio.Event()
        self.answered = 0
        self.failed = 0
        self.resets = 0
        self._seed = seed
        self._engines = engines
        self._http = http
        random = Random(seed)
        self._shared = [_tokens(random, random.randint(3, 8)) for _ in range(SHARED)]
        self._recent: list[list[int]] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._client(Random(f"{self._seed} {number}")) for number in range(CLIENTS)))

    async def _client(self, random: Random) -> None:
        while not self.stop.is_set():
            engine = random.choice(self._engines)
            body = {"prompt": self._prompt(random), "max_tokens": random.randint(1, 3 * BLOCK_SIZE)}
            resets = random.random() < RESET
            try:
                if resets:
                    status = await self._post(f"{engine.url}/reset_prefix_cache")
                else:
                    status = await self._post(f"{engine.url}/v1/completions", body)
            except (OSError, TimeoutError, aiohttp.ClientError):
                self.failed += 1
            else:
                self.answered += status == 200 and not resets
                self.resets += status == 200 and resets
            try:
                async with asyncio.timeout(random.uniform(0.0, LONGEST_PAUSE_S)):
                    await self.stop.wait()
            except TimeoutError:
                continue

    async def _post(self, url: str, body: object = None) -> int:
        async with self._http.post(url, json=body) as answer:
            await answer.read()
            return answer.status

    def _prompt(self, random: Random) -> list[int]:
        if self._recent and random.random() < REPEATED:
            return random.choice(self._recent)
        tail = _tokens(random, random.randint(0, 6))
        prompt = random.choice(self._shared) + tail + tail[: random.randrange(BLOCK_SIZE)] + [1]
        self._recent = [*self._recent[-20:], prompt]
        return prompt


def _tokens(random: Random, blocks: int) -> list[int]:
    return [random.randrange(VOCABULARY) for _ in range(blocks * BLOCK_SIZE)]
