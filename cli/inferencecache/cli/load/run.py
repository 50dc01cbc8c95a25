"""One run of load: everything around the driver, from connections to background measurements."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack
from typing import Final

from inferencecache.cli.agreement import watch_agreement
from inferencecache.cli.load.choice import Pool
from inferencecache.cli.load.conversations import Workload
from inferencecache.cli.load.driver import Driver
from inferencecache.cli.load.engines import Engines
from inferencecache.cli.load.figures import Figures
from inferencecache.cli.load.hints import Router
from inferencecache.cli.load.probe import Probe
from inferencecache.cli.load.views import watch_views
from inferencecache.cli.running import finished_before, in_background
from inferencecache.cli.stack import Plan

SETTLE_LIMIT_S: Final = 10.0
POLL_S: Final = 0.1


class LoadRun:
    """Load on the engines of a plan. `total_turns` bounds it; None goes on until `stop`."""

    def __init__(self, plan: Plan, workload: Workload, model: str, total_turns: int | None) -> None:
        self.hinted = Pool(plan.engines)
        self.control = Pool(plan.control)
        self.figures = Figures(
            self.hinted.outstanding,
            self.control.outstanding,
            [router.name for router in plan.routers],
            [indexer.name for indexer in plan.indexers],
        )
        self._plan = plan
        self._workload = workload
        self._model = model
        self._total_turns = total_turns
        self._began_at = time.monotonic()
        self._ended_at: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds that the run has lasted."""
        return (self._ended_at or time.monotonic()) - self._began_at

    async def run(self, stop: asyncio.Event) -> bool:
        """True when all turns were made, false when `stop` came first."""
        self._began_at = time.monotonic()
        async with AsyncExitStack() as stack:
            engines = await stack.enter_async_context(Engines(self._model))
            routers = [Router(address, self._model) for address in self._plan.routers]
            for router in routers:
                stack.push_async_callback(router.close)
            probe = Probe(engines, self.hinted, self.control, routers, self.figures, self._workload.seed)
            views = watch_views(self._plan.indexers, self._plan.routers, self.figures)
            await stack.enter_async_context(in_background(views))
            agreement = watch_agreement(self._plan.nats_url, self.figures.agreement)
            await stack.enter_async_context(in_background(agreement))
            driver = Driver(
                self._workload,
                engines,
                self.hinted,
                self.control,
                routers,
                self.figures,
                total_turns=self._total_turns,
            )
            async with in_background(probe.run()):
                finished = await finished_before(stop, driver.run())
            self._ended_at = time.monotonic()
            return finished and await self._settled(stop)

    async def _settled(self, stop: asyncio.Event) -> bool:
        """Once no load moves them, routers soon stand at the same delta: let them be compared."""
        compared = self.figures.agreement.compared
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while self.figures.agreement.compared == compared and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await stop.wait()
                    return False
        return True
