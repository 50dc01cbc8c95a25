"""The event sockets and metrics pages of simulated engines, as vLLM has them, at the replay's clock."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from aiohttp import web

from benchmarks.routing.engine import Engine, Served
from benchmarks.routing.trace import BLOCK_TOKENS, tokens_of
from inferencecache.simengine.cache import Stored
from inferencecache.simengine.events import BlocksRemoved, BlocksStored, Event
from inferencecache.simengine.publisher import EventPublisher
from inferencecache.simengine.vllm_form import VllmForm

Statistics = Literal["fresh", "stale", "absent"]
"""Whether metrics pages answer, stop answering after a while, or never do."""
STALE_AFTER_S: Final = 5.0

_PAGE: Final = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting {waiting}
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
"""


class Clock:
    """The trace's time: `speed` times as fast as the event loop's, 0 when the replay begins."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    def begin(self) -> None:
        self._began = self._loop.time()

    @property
    def now_s(self) -> float:
        return (self._loop.time() - self._began) * self.speed

    async def until(self, at_s: float) -> None:
        """Return at that time of the trace, at once when it is past."""
        await asyncio.sleep(max(0.0, at_s - self.now_s) / self.speed)


class _Due(NamedTuple):
    at_s: float
    event: Event
    seen: Callable[[], None] | None


class PublishingEngine:
    """An engine whose stores and evictions leave when they happen."""

    def __init__(self, engine: Engine, events: str, replay: str) -> None:
        self.engine = engine
        self._publisher = EventPublisher(events, replay, form=VllmForm(BLOCK_TOKENS))
        self._due: deque[_Due] = deque()
        self._came = asyncio.Event()

    async def run(self, clock: Clock) -> None:
        """Publish until cancelled."""
        self._publisher.start()
        try:
            while True:
                while not self._due:
                    self._came.clear()
                    await self._came.wait()
                await clock.until(self._due[0].at_s)
                due = self._due.popleft()
                self._publisher.publish([due.event])
                if due.seen is not None:
                    due.seen()
        finally:
            await self._publisher.close()

    def tell(self, blocks: Sequence[int], served: Served, stored: Callable[[], None] | None = None) -> None:
        """Announce what a request did to the cache, when it does; `stored` is called as its store leaves."""
        if served.removed:
            removed = BlocksRemoved(tuple(map(_hash, served.removed)))
            self._due.append(_Due(served.started_s, removed, None))
        if served.stored:
            parent = blocks[: -len(served.stored)][-1:]
            run = Stored(
                tuple(map(_hash, served.stored)),
                _hash(parent[0]) if parent else None,
                tokens_of(served.stored),
            )
            self._due.append(_Due(served.finished_s, BlocksStored(run), stored))
        self._came.set()


class MetricsPages:
    """One HTTP listener with the metrics page of each engine below its name."""

    def __init__(self, engines: Sequence[Engine], clock: Clock, statistics: Statistics) -> None:
        self._engines = {engine.name: engine for engine in engines}
        self._clock = clock
        self._statistics = statistics
        self._started = time.time()

    async def serve(self, host: str, port: int) -> None:
        """Answer until cancelled."""
        application = web.Application()
        application.add_routes([web.get("/{engine}/metrics", self._page)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _page(self, request: web.Request) -> web.Response:
        over = self._clock.now_s > STALE_AFTER_S * self._clock.speed
        if self._statistics == "absent" or (self._statistics == "stale" and over):
            raise web.HTTPServiceUnavailable
        outstanding = self._engines[request.match_info["engine"]].outstanding(self._clock.now_s)
        page = _PAGE.format(
            running=min(1, outstanding), waiting=max(0, outstanding - 1), started=self._started
        )
        return web.Response(text=page)


def _hash(block: int) -> bytes:
    return block.to_bytes(8, "big")
