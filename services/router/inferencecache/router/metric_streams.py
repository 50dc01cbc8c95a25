"""`StreamMetrics`: the process's metrics once a second, for observers that do not scrape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Final

import grpc
from prometheus_client import CollectorRegistry

from inferencecache.router.calls import CallError
from inferencecache.v1alpha1.inferencecache_pb2 import Metric, StreamMetricsRequest

INTERVAL_S: Final = 1.0
_TYPES: Final = frozenset({"gauge", "counter", "histogram"})


class MetricStreams:
    """Streams of one registry; a slow reader gets fewer rounds, never older ones."""

    def __init__(self, registry: CollectorRegistry, interval_s: float = INTERVAL_S) -> None:
        self._registry = registry
        self._interval_s = interval_s
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def watch(self, request: StreamMetricsRequest) -> AsyncIterator[AsyncIterator[Metric]]:
        """All samples of the named metrics, at once and then again each second. It never ends by itself.

        A name is that of a sample or of its family, as of a histogram; none means all metrics. A
        name that nobody has is waited for. Raises `CallError` when the router stops.
        """
        yield self._rounds(frozenset(request.names))

    def stop(self) -> None:
        """End all streams with `UNAVAILABLE`."""
        self._stopping.set()

    async def _rounds(self, names: Collection[str]) -> AsyncIterator[Metric]:
        while True:
            for metric in samples(self._registry, names, time.time_ns() // 1000):
                yield metric
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._stopping.wait()
            except TimeoutError:
                continue
            raise CallError(grpc.StatusCode.UNAVAILABLE, "the router is stopping; ask another one")


def samples(registry: CollectorRegistry, names: Collection[str], now_us: int) -> Iterator[Metric]:
    """The samples of a registry as messages; what is neither counter nor histogram counts as a gauge."""
    for family in registry.collect():
        kind = family.type if family.type in _TYPES else "gauge"
        for sample in family.samples:
            if names and family.name not in names and sample.name not in names:
                continue
            if kind != "gauge" and sample.name.endswith("_created"):
                continue
            yield Metric(
                name=sample.name, type=kind, labels=sample.labels, value=sample.value, timestamp_us=now_us
            )
