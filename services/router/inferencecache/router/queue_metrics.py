"""The router's queues, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from inferencecache.core.service import Queue, queue_metrics


class QueueMetrics(Collector):
    """Exports what `queues` says."""

    def __init__(self, registry: CollectorRegistry, queues: Callable[[], Iterable[Queue]]) -> None:
        self._queues = queues
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect once to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from queue_metrics("router", self._queues())
