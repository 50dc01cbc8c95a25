"""Queues as metrics: how much waits in each, and how much may, under the same names in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from inferencecache.core.service.measures import GaugeMeasure


class Queue(NamedTuple):
    """A bounded queue. `name` ends with the unit of `size` and `limit`, as in `outbox_records`."""

    name: str
    size: float
    limit: float


def queue_measures(service: str) -> tuple[GaugeMeasure, GaugeMeasure]:
    """Two for all queues of a process."""
    size = GaugeMeasure(
        f"inferencecache_{service}_queue_size",
        "What waits, in the unit that the queue's name ends with; of several of a kind, in the fullest.",
        "that what went through an empty queue has taken effect",
        ("queue",),
    )
    limit = GaugeMeasure(
        f"inferencecache_{service}_queue_limit",
        "The most that waits; what comes on top is refused, held back or told anew, as docs/limits.md says.",
        "that memory suffices for a queue that is full",
        ("queue",),
    )
    return size, limit


def queue_metrics(service: str, queues: Iterable[Queue]) -> tuple[Metric, Metric]:
    """The families of `queue_measures`."""
    size, limit = (measure.family() for measure in queue_measures(service))
    for queue in queues:
        size.add_metric((queue.name,), queue.size)
        limit.add_metric((queue.name,), queue.limit)
    return size, limit


class QueueMetrics(Collector):
    """Exports what `queues` says whenever it is asked, as `queue_metrics` does."""

    def __init__(
        self, service: str, registry: CollectorRegistry, queues: Callable[[], Iterable[Queue]]
    ) -> None:
        self._service = service
        self._queues = queues
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect once to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from queue_metrics(self._service, self._queues())
