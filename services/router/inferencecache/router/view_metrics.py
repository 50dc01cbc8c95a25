"""Metrics of the replicated index, read when they are asked for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from inferencecache.core.index.work import AssignedWork
from inferencecache.core.protocol.generations import Generations
from inferencecache.core.service import OTHER, CounterMeasure, GaugeMeasure, LabelNames
from inferencecache.router.replica import PartitionReplica
from inferencecache.schemas.ids import PROBE_TENANT

MAX_WORKING: Final = 1000

_PREFIX: Final = "inferencecache_router_"
_PARTITION: Final = ("partition",)

COMPLETE: Final = GaugeMeasure(
    f"{_PREFIX}view_complete",
    "1 once every partition is loaded; until then lookups answer NO_HINT.",
    "that the view is young; its age does",
)
GENERATION: Final = GaugeMeasure(
    f"{_PREFIX}layout_generation",
    "Generation of the layout by which lookups are answered; 0 before there is one.",
    "that it is the newest",
)
COMING_GENERATION: Final = GaugeMeasure(
    f"{_PREFIX}layout_coming_generation",
    "Generation whose views are built to take the place of those that answer; 0 when there is none.",
    "that it will: it waits for replicas and for owners",
)
SWAPS: Final = CounterMeasure(
    f"{_PREFIX}layout_swaps",
    "Changes of the layout that lookups have followed: complete, or late when replicas that were "
    "alive before had not begun in the new generation in time.",
    "that all routers have followed",
    ("outcome",),
)
ENTRIES: Final = GaugeMeasure(
    f"{_PREFIX}view_entries",
    "Distinct prefixes held in this router's view; every router has them all.",
    "that engines still hold them",
    ("model",),
)
AGE: Final = GaugeMeasure(
    f"{_PREFIX}view_age_seconds",
    "Time since the last delta arrived; an owner tells one each second.",
    "that producers report all they do",
    _PARTITION,
)
DELTA: Final = GaugeMeasure(
    f"{_PREFIX}view_delta",
    "Number of the delta that the view stands at.",
    "that it is the last; routers' digests at one number tell whether their views agree",
    _PARTITION,
)
STORED: Final = GaugeMeasure(
    f"{_PREFIX}view_stored_entries",
    "Entries of the view: one a prefix and replica.",
    "how much memory the process takes: the table is larger than what is in it",
    _PARTITION,
)
REPAIRS: Final = CounterMeasure(
    f"{_PREFIX}view_repairs",
    "Times that a partition had to begin again from a snapshot.",
    "that lookups were harmed: the earlier view answers meanwhile",
    _PARTITION,
)
ASSIGNED: Final = GaugeMeasure(
    f"{_PREFIX}assigned_work_tokens",
    "Prompt tokens that hints left a replica to compute lately, decayed; an estimate of its queue.",
    "that callers followed the hints",
    ("model", "replica"),
)


class Replicas(Protocol):
    """What the metrics are about."""

    generations: Generations
    swaps: Counter[str]
    work: AssignedWork | None

    @property
    def replicas(self) -> Sequence[PartitionReplica]: ...

    @property
    def complete(self) -> bool: ...


class ViewMetrics(Collector):
    """How complete and how old the view is."""

    def __init__(self, registry: CollectorRegistry, following: Replicas) -> None:
        self._following = following
        self._models = LabelNames()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect once to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        replicas = self._following.replicas
        yield COMPLETE.family(float(self._following.complete))
        yield from self._generations()
        yield self._entries(replicas)
        families = [each.family() for each in (AGE, DELTA, STORED, REPAIRS)]
        age, delta, stored, repairs = families
        for replica in replicas:
            label = (replica.key,)
            age.add_metric(label, replica.age_s())
            delta.add_metric(label, replica.view.delta.sequence)
            stored.add_metric(label, replica.view.entries)
            repairs.add_metric(label, replica.follower.repairs)
        yield from families
        if self._following.work is not None:
            yield _assigned(self._following.work)

    def _generations(self) -> Iterator[Metric]:
        serving, coming = self._following.generations.serving, self._following.generations.coming
        yield GENERATION.family(serving.generation if serving is not None else 0)
        yield COMING_GENERATION.family(coming.generation if coming is not None else 0)
        swaps = SWAPS.family()
        for outcome in ("complete", "late"):
            swaps.add_metric((outcome,), self._following.swaps[outcome])
        yield swaps

    def _entries(self, replicas: Sequence[PartitionReplica]) -> Metric:
        entries: Counter[str] = Counter()
        for replica in replicas:
            for (tenant, model), held in replica.view.holders.models.items():
                if tenant == PROBE_TENANT:
                    continue
                entries[self._models.label(model)] += held.keys
        family = ENTRIES.family()
        for model in sorted({*self._models, *entries}):
            family.add_metric((model,), entries[model])
        return family


def _assigned(work: AssignedWork) -> Metric:
    """The replicas with most work; what the others have is one series, so that idle ones cost nothing."""
    tokens: Counter[tuple[str, str]] = Counter()
    for item in work.everything(time.monotonic()):
        tokens[item.model, item.replica] += item.tokens  # type: ignore[assignment] # adds as well
    family = ASSIGNED.family()
    busiest = tokens.most_common(MAX_WORKING)
    for labels, amount in busiest:
        family.add_metric(labels, amount)
    if len(tokens) > len(busiest):
        rest = tokens.total() - sum(amount for _, amount in busiest)
        family.add_metric((OTHER, OTHER), rest)
    return family
