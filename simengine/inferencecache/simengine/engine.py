"""One simulated engine: requests in, tokens out after the time they take, events of the cache beside.

A request waits for its turn, takes its blocks (evicting others), computes what is not cached, then
decodes beside the others. Blocks become reusable, and their event leaves, when they are computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from inferencecache.simengine.cache import Allocation, BlockCache, PromptTooLongError, Stored
from inferencecache.simengine.events import AllCleared, BlocksRemoved, BlocksStored, Event
from inferencecache.simengine.host import HostCache
from inferencecache.simengine.sampling import answer
from inferencecache.simengine.timing import PrefillQueue, Speed

Publish = Callable[[Sequence[Event]], float]
"""Sends events as one message and returns the Unix time that it carries."""


@dataclass(frozen=True)
class EngineSettings:
    """Size and speed of an engine; `hash_root` seeds its block hashes, `host_blocks` is the second tier."""

    num_blocks: int = 2048
    host_blocks: int = 0
    block_size: int = 16
    speed: Speed = field(default_factory=Speed)
    hash_root: bytes = b""


@dataclass
class Usage:
    """What one request cost; times are seconds of the event loop's clock, `stored_at` is Unix time.

    Of the cached tokens, `host_tokens` were found in the second tier only.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    host_tokens: int = 0
    completion_tokens: int = 0
    arrived_at: float = 0.0
    first_token_at: float = 0.0
    stored_at: float = 0.0
    """When the event with the prompt's new blocks left; 0 while there was none."""


class Counters:
    """Totals since start, in requests and tokens."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0
        self.finished = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.host_tokens = 0
        self.generation_tokens = 0

    @property
    def device_tokens(self) -> int:
        """Prompt tokens found on the device."""
        return self.cached_tokens - self.host_tokens


class Engine:
    """Serves requests until its event loop ends. Not for use from several threads."""

    def __init__(self, settings: EngineSettings, publish: Publish) -> None:
        self.settings = settings
        self.cache = BlockCache(settings.num_blocks, settings.block_size, settings.hash_root)
        self.host = HostCache(settings.host_blocks)
        self.counters = Counters()
        self._publish = publish
        self._prefill = PrefillQueue(settings.speed)
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()

    def usage_for(self, prompt: Sequence[int], max_tokens: int) -> Usage:
        """Begin the account of a request. Raises `PromptTooLongError` when it can never be served."""
        size = self.settings.block_size
        needed = -(-(len(prompt) + max_tokens) // size)
        if needed > self.settings.num_blocks:
            raise PromptTooLongError(needed, self.settings.num_blocks)
        return Usage(len(prompt), arrived_at=_now())

    async def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        usage: Usage,
        *,
        adapter: str = "",
        each_token: bool = False,
    ) -> AsyncIterator[list[int]]:
        """The answer's tokens as they are made: one by one, or a block at a time.

        Closing the iterator early ends the request and frees its blocks.
        """
        allocation: Allocation | None = None
        self.counters.waiting += 1
        try:
            async with self._turn:
                allocation, ready_at = await self._allocated(prompt, max_tokens, adapter, usage.arrived_at)
                self.counters.waiting -= 1
                self.counters.running += 1
                await self._compute(allocation, ready_at, usage)
            async for tokens in self._decoded(allocation, prompt, max_tokens, each_token):
                usage.completion_tokens += len(tokens)
                yield tokens
        finally:
            if allocation is None:
                self.counters.waiting -= 1
            else:
                self._end(allocation)

    def reset(self) -> bool:
        """Forget every cached block; refused while a request runs. The event leaves at once."""
        if not self.cache.clear():
            return False
        self.host.clear()
        self._publish([AllCleared()])
        return True

    async def _allocated(
        self, prompt: Sequence[int], max_tokens: int, adapter: str, arrived_at: float
    ) -> tuple[Allocation, float]:
        ready_at = arrived_at
        while (allocation := self.cache.allocate(prompt, max_tokens, adapter)) is None:
            self._released.clear()
            await self._released.wait()
            ready_at = _now()
        return allocation, ready_at

    def _end(self, allocation: Allocation) -> None:
        self.cache.release(allocation)
        self.counters.running -= 1
        self.counters.finished += 1
        self._released.set()

    async def _compute(self, allocation: Allocation, ready_at: float, usage: Usage) -> None:
        usage.host_tokens = self._tokens_on_host(allocation, usage.prompt_tokens)
        usage.cached_tokens = allocation.cached_tokens + usage.host_tokens
        self.counters.prompt_tokens += usage.prompt_tokens
        self.counters.cached_tokens += usage.cached_tokens
        self.counters.host_tokens += usage.host_tokens
        if allocation.evicted:
            self._publish([BlocksRemoved(allocation.evicted)])
        uncached = usage.prompt_tokens - usage.cached_tokens
        await _sleep_until(self._prefill.finish(ready_at, uncached))
        usage.stored_at = self._store(allocation)
        usage.first_token_at = _now()

    def _tokens_on_host(self, allocation: Allocation, prompt_tokens: int) -> int:
        """Tokens after those on the device that need not be computed either."""
        size = self.settings.block_size
        first, end = allocation.cached_tokens // size, (prompt_tokens - 1) // size
        return self.host.leading(allocation.hashes[first:end]) * size

    async def _decoded(
        self, allocation: Allocation, prompt: Sequence[int], max_tokens: int, each_token: bool
    ) -> AsyncIterator[list[int]]:
        source = answer(prompt)
        size = self.settings.block_size
        began = _now()
        made = 0
        while made < max_tokens:
            room = size - len(allocation.tokens) % size
            step = 1 if each_token else min(room, max_tokens - made)
            made += step
            await _sleep_until(began + self.settings.speed.decode_time(made - 1))
            tokens = list(islice(source, step))
            for token in tokens:
                self.cache.append(allocation, token)
            self._store(allocation)
            self.counters.generation_tokens += step
            yield tokens

    def _store(self, allocation: Allocation) -> float:
        runs = self.cache.store(allocation)
        if not runs:
            return 0.0
        events: list[Event] = [BlocksStored(run) for run in runs]
        if self.host.capacity:
            events.extend(self._copied(allocation, runs))
        return self._publish(events)

    def _copied(self, allocation: Allocation, runs: Sequence[Stored]) -> list[Event]:
        new = [hash_ for run in runs for hash_ in run.hashes]
        gone = self.host.copy(allocation.hashes, new)
        events: list[Event] = [BlocksStored(run, "host") for run in runs]
        if gone:
            events.append(BlocksRemoved(gone, "host"))
        return events


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _sleep_until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - _now()))
