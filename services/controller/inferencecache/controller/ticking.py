"""The tick: all that is told of the index in Kubernetes, each time from one aggregate [CTL-168..170].

A tick that finds no complete aggregate changes nothing but what says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Protocol

from inferencecache.controller.aggregate import AggregateReader, IncompleteAggregateError, Source
from inferencecache.core.kube.api import KubeError
from inferencecache.core.service import get_logger

logger = get_logger("tick")


class Projection(Protocol):
    """One thing that is told. With `is_required` the projections after it wait for the next tick when it
    fails. All may raise `KubeError`.
    """

    name: str
    is_required: bool

    async def prepare(self) -> None:
        """At the begin of a tick, whether there is an aggregate or not."""
        ...

    async def project(self, source: Source) -> None:
        """Tell what the aggregate says."""
        ...

    async def stale(self, problem: str) -> None:
        """There is no complete aggregate now."""
        ...


class Ticking:
    """Ticks at the start, as soon as there is a first aggregate, and every `period_s`."""

    def __init__(self, reader: AggregateReader, projections: Sequence[Projection], period_s: float) -> None:
        self._reader = reader
        self._projections = projections
        self._period_s = period_s

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            is_complete = await self.tick()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await (asyncio.Event().wait() if is_complete else self._reader.completed())

    async def tick(self) -> bool:
        """Once; was there a complete aggregate?"""
        for projection in self._projections:
            await self._attempt(projection, projection.prepare())
        try:
            source = self._reader.read()
        except IncompleteAggregateError as error:
            logger.warning("aggregate_unavailable", msg=str(error))
            for projection in self._projections:
                await self._attempt(projection, projection.stale(str(error)))
            return False
        for projection in self._projections:
            if not await self._attempt(projection, projection.project(source)) and projection.is_required:
                break
        return True

    async def _attempt(self, projection: Projection, step: Awaitable[None]) -> bool:
        try:
            await step
        except KubeError as error:
            logger.warning("projection_failed", projection=projection.name, error=str(error))
            return False
        except Exception:
            # The next tick may find what this one stumbled over gone; the other projections go on.
            logger.exception("projection_broken", projection=projection.name)
            return False
        return True
