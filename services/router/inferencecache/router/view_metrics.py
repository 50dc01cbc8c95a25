"""Metrics of the replicated index, read when they are asked for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inferencecache.core.index.work import AssignedWork
from inferencecache.router.metrics import MAX_MODELS, OTHER_MODELS
from inferencecache.router.replica import PartitionReplica
from inferencecache.schemas.ids import PROBE_TENANT

MAX_WORKING: Final = 1000


class Replicas(Protocol):
    """What the metrics are about."""

    replicas: list[PartitionReplica]
    work: AssignedWork | None

    @property
    def complete(self) -> bool: ...


class ViewMetrics(Collector):
    """How complete and how old the view is. A young view does not prove that producers report all."""

    def __init__(self, registry: CollectorRegistry, following: Replicas) -> None:
        self._following = following
        self._models: set[str] = set()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect once to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        replicas = self._following.replicas
        yield GaugeMetricFamily(
            "inferencecache_router_view_complete",
            "1 once every partition is loaded; until then lookups answer NO_HINT.",
            float(self._following.complete),
        )
        yield self._entries(replicas)
        age = _gauge("view_age_seconds", "Time since the last delta arrived; an owner tells one each second.")
        delta = _gauge("view_delta", "Number of the delta that the view stands at.")
        stored = _gauge("view_stored_entries", "Entries of the view: one a prefix and replica.")
        repairs = CounterMetricFamily(
            "inferencecache_router_view_repairs",
            "Times that a partition had to begin again from a snapshot.",
            labels=("partition",),
        )
        for replica in replicas:
            label = (replica.key,)
            age.add_metric(label, replica.age_s())
            delta.add_metric(label, replica.view.delta.sequence)
            stored.add_metric(label, replica.view.entries)
            repairs.add_metric(label, replica.follower.repairs)
        yield from (age, delta, stored, repairs)
        if self._following.work is not None:
            yield _assigned(self._following.work)

    def _entries(self, replicas: Sequence[PartitionReplica]) -> Metric:
        entries: Counter[str] = Counter()
        for replica in replicas:
            for (tenant, model), held in replica.view.holders.models.items():
                if tenant == PROBE_TENANT:
                    continue
                if model not in self._models and len(self._models) < MAX_MODELS:
                    self._models.add(model)
                entries[model if model in self._models else OTHER_MODELS] += held.keys
        family = GaugeMetricFamily(
            "inferencecache_router_view_entries",
            "Distinct prefixes held in this router's view; every router has them all.",
            labels=("model",),
        )
        for model in sorted(self._models | set(entries)):
            family.add_metric((model,), entries[model])
        return family


def _assigned(work: AssignedWork) -> Metric:
    """The replicas with most work; what the others have is one series, so that idle ones cost nothing."""
    tokens: Counter[tuple[str, str]] = Counter()
    for item in work.everything(time.monotonic()):
        tokens[item.model, item.replica] += item.tokens  # type: ignore[assignment] # adds as well
    family = GaugeMetricFamily(
        "inferencecache_router_assigned_work_tokens",
        "Prompt tokens that hints left a replica to compute lately, decayed; an estimate of its queue. It "
        "does not prove that callers followed the hints.",
        labels=("model", "replica"),
    )
    busiest = tokens.most_common(MAX_WORKING)
    for labels, amount in busiest:
        family.add_metric(labels, amount)
    if len(tokens) > len(busiest):
        rest = tokens.total() - sum(amount for _, amount in busiest)
        family.add_metric((OTHER_MODELS, OTHER_MODELS), rest)
    return family


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"inferencecache_router_{name}", text, labels=("partition",))
