"""The indexer's metrics, read from its partitions when they are asked for [OPS-37, OPS-38]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from inferencecache.core.log import Log
from inferencecache.core.log.inbox import MOST_IN_FLIGHT
from inferencecache.core.log.reader import MOST_ASKED
from inferencecache.core.service import CounterMeasure, GaugeMeasure, LabelNames, Queue, queue_metrics
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.schemas.ids import PROBE_TENANT

_PREFIX: Final = "inferencecache_indexer_"
_PARTITION: Final = ("partition",)

GENERATION: Final = GaugeMeasure(
    f"{_PREFIX}layout_generation",
    "Newest generation of the layout whose partitions are kept; older ones are kept until pruned.",
    "that routers answer by it",
)
ENTRIES: Final = GaugeMeasure(
    "inferencecache_index_entries",
    "Distinct prefixes held, in the partitions that this indexer owns; a sum over indexers is right.",
    "that engines still hold them, or how much memory they take: a prefix may have many holders",
    ("model",),
)
LAST_EVENT: Final = GaugeMeasure(
    "inferencecache_replica_last_event_at",
    "Log time of the replica's last batch that counted, in seconds since the Unix epoch.",
    "that the engine reports all it does: a sidecar says that it is alive also when its engine is silent",
    ("tenant", "replica"),
)
EVICTIONS: Final = CounterMeasure(
    "inferencecache_index_evictions",
    "Entries (one a prefix and replica) that the cap or their age removed, in owned partitions.",
    "that engines have let go of them",
    ("algorithm", "reason"),
)
TENANT_EVICTIONS: Final = CounterMeasure(
    "inferencecache_tenant_evictions",
    "Distinct prefixes that were evicted to respect a tenant's quota, in owned partitions.",
    "that the quota is too small: at a quota a steady rate is what is meant",
    ("tenant_id", "reason"),
)
OWNED: Final = GaugeMeasure(
    f"{_PREFIX}partition_owned",
    "1 for a partition that this indexer owns, 0 for one that it stands by for.",
    "that no other indexer believes the same for a moment; the log decides",
    _PARTITION,
)
LAG: Final = GaugeMeasure(
    f"{_PREFIX}lag_seconds",
    "Time since the partition was last folded to the head of its log.",
    "that producers reach the log",
    _PARTITION,
)
PENDING: Final = GaugeMeasure(
    f"{_PREFIX}pending_messages",
    "Messages of the log that are not folded yet.",
    "that folding them takes long",
    _PARTITION,
)
HELD: Final = GaugeMeasure(
    f"{_PREFIX}held_messages",
    "Messages that wait here until a snapshot has been copied.",
    "that a snapshot will be stored",
    _PARTITION,
)
UNTOLD: Final = GaugeMeasure(
    f"{_PREFIX}untold_messages",
    "Messages that are folded and in no stored delta yet.",
    "that routers have what was told",
    _PARTITION,
)
STORED: Final = GaugeMeasure(
    f"{_PREFIX}stored_entries",
    "Entries of this indexer's state: one a prefix and replica.",
    "what the whole index holds: standbys have the same entries as their owner",
    _PARTITION,
)
FOLDED: Final = CounterMeasure(
    f"{_PREFIX}messages_folded",
    "Messages of the log that were folded.",
    "that they changed anything",
    _PARTITION,
)
DROPPED: Final = CounterMeasure(
    f"{_PREFIX}dropped",
    "Batches and records of owned partitions that did not count, by reason.",
    "that anything is missing: what was dropped as a duplicate counted before, holes are told anew",
    ("partition", "reason"),
)
DELTAS: Final = CounterMeasure(
    f"{_PREFIX}deltas_stored",
    "Deltas that were stored.",
    "that routers have applied them; their view ages do",
    _PARTITION,
)
DELTA_BYTES: Final = CounterMeasure(
    f"{_PREFIX}delta_bytes_stored",
    "Bytes of the deltas that were stored.",
    "what crosses the network: each router reads them all",
    _PARTITION,
)
SNAPSHOTS: Final = CounterMeasure(
    f"{_PREFIX}snapshots",
    "Snapshots that were referenced after being read back, and that came to nothing.",
    "that one which is stored now could be loaded by a router",
    ("partition", "result"),
)
RESYNCS: Final = CounterMeasure(
    f"{_PREFIX}resync_requests",
    "Requests sent to producers: to begin anew, or that another has begun in their place.",
    "that a producer heard it",
    ("partition", "kind"),
)
RESTORED: Final = CounterMeasure(
    f"{_PREFIX}restorations",
    "States that were restored from a snapshot or from the log.",
    "that anything was lost: the first start is one too",
    _PARTITION,
)
FROM_LOG: Final = CounterMeasure(
    f"{_PREFIX}restorations_from_log",
    "Restorations that no snapshot served.",
    "that snapshots are damaged: a new installation has none",
    _PARTITION,
)


class IndexerMetrics(Collector):
    """What each partition does. None of it proves that routers have it: their view ages do."""

    def __init__(self, registry: CollectorRegistry, log: Log, partitions: Sequence[PartitionIndexer]) -> None:
        self._log = log
        self._partitions = partitions
        self._models = LabelNames()
        self._tenants = LabelNames()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect once to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families; those of what is owned only while it is owned."""
        generations = (int(partition.key.partition(".")[0]) for partition in self._partitions)
        yield GENERATION.family(max(generations, default=0))
        yield self._entries()
        yield self._last_events()
        yield from self._evictions()
        yield from self._gauges()
        yield from self._counters()
        yield from queue_metrics("indexer", self._queues())

    def _queues(self) -> Iterator[Queue]:
        """Of partitions' queues the fullest: each has its own limit."""
        states = [partition.state for partition in self._partitions if partition.state is not None]
        waiting = max((state.folding.waiting for state in states), default=0)
        yield Queue("unfolded_messages", waiting, MOST_ASKED)
        changes = [state.folding.fold.changes for state in states]
        fullest = max(changes, key=lambda each: each.bytes / each.max_bytes, default=None)
        if fullest is not None:
            yield Queue("untold_bytes", fullest.bytes, fullest.max_bytes)
        yield Queue("nats_questions", self._log.publisher.in_flight, MOST_IN_FLIGHT)

    def _entries(self) -> Metric:
        entries: Counter[str] = Counter()
        for partition in self._partitions:
            if partition.state is None or not partition.owned:
                continue
            for (tenant, model), held in partition.state.folding.fold.view.holders.models.items():
                if tenant != PROBE_TENANT:
                    entries[self._models.label(model)] += held.keys
        family = ENTRIES.family()
        for model in sorted({*self._models, *entries}):
            family.add_metric((model,), entries[model])
        return family

    def _last_events(self) -> Metric:
        newest: dict[tuple[str, str], int] = {}
        for partition in self._partitions:
            if partition.state is None or not partition.owned:
                continue
            for name, row in partition.state.folding.fold.view.rows.items():
                key = (name.tenant, name.replica)
                newest[key] = max(newest.get(key, 0), row.heard_us)
        family = LAST_EVENT.family()
        for (tenant, replica), heard_us in sorted(newest.items()):
            if tenant != PROBE_TENANT:
                family.add_metric((tenant, replica), heard_us / 1e6)
        return family

    def _evictions(self) -> Iterator[Metric]:
        evictions: Counter[tuple[str, str]] = Counter()
        of_tenants: Counter[str] = Counter()
        for partition in self._partitions:
            evictions += partition.evictions
            for tenant, count in partition.tenant_evictions.items():
                of_tenants[self._tenants.label(tenant)] += count
        family = EVICTIONS.family()
        for labels, count in sorted(evictions.items()):
            family.add_metric(labels, count)
        yield family
        family = TENANT_EVICTIONS.family()
        for tenant, count in sorted(of_tenants.items()):
            family.add_metric((tenant, "over_entries"), count)
        yield family

    def _gauges(self) -> Iterator[Metric]:
        families = [each.family() for each in (OWNED, LAG, PENDING, HELD, UNTOLD, STORED)]
        owned, lag, pending, held, untold, stored = families
        for partition in self._partitions:
            label = (partition.key,)
            state = partition.state
            owned.add_metric(label, partition.owned)
            if state is not None:
                lag.add_metric(label, state.folding.lag_s())
                pending.add_metric(label, state.folding.pending)
                held.add_metric(label, state.folding.waiting)
                untold.add_metric(label, state.folding.fold.changes.pending)
                stored.add_metric(label, state.folding.fold.view.entries)
        yield from families

    def _counters(self) -> Iterator[Metric]:
        """Counters begin again when a partition is restored, as after a restart of the process."""
        measures = (FOLDED, DROPPED, DELTAS, DELTA_BYTES, SNAPSHOTS, RESYNCS, RESTORED, FROM_LOG)
        families = [each.family() for each in measures]
        folded, dropped, deltas, delta_bytes, snapshots, resyncs, restored, from_log = families
        for partition in self._partitions:
            label = (partition.key,)
            for kind, count in partition.resyncs_sent.items():
                resyncs.add_metric((partition.key, kind), count)
            restored.add_metric(label, partition.restored)
            from_log.add_metric(label, partition.restorations_from_log)
            state = partition.state
            if state is None:
                continue
            folded.add_metric(label, state.folding.folded)
            if partition.owned:
                for reason, count in state.folding.dropped.items():
                    dropped.add_metric((partition.key, reason), count)
            deltas.add_metric(label, state.telling.owner.deltas_stored)
            delta_bytes.add_metric(label, state.telling.owner.bytes_stored)
            machine = state.telling.snapshots
            snapshots.add_metric((partition.key, "referenced"), machine.referenced_count)
            snapshots.add_metric((partition.key, "dropped"), machine.dropped_count)
        yield from families
