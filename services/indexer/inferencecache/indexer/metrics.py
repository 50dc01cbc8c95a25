"""The indexer's metrics, read from its partitions when they are asked for [OPS-37, OPS-38]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inferencecache.core.log import Log
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.schemas.ids import PROBE_TENANT

MAX_LABELS: Final = 1000
OTHER: Final = "other"


class IndexerMetrics(Collector):
    """What each partition does. None of it proves that routers have it: their view ages do."""

    def __init__(self, registry: CollectorRegistry, log: Log, partitions: Sequence[PartitionIndexer]) -> None:
        self._log = log
        self._partitions = partitions
        self._models: set[str] = set()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect once to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families; those of what is owned only while it is owned."""
        yield self._entries()
        yield self._last_events()
        yield from self._evictions()
        yield from self._gauges()
        yield from self._counters()
        in_flight = "Publishes and requests that wait for an answer of the NATS server."
        yield GaugeMetricFamily("inferencecache_indexer_in_flight", in_flight, self._log.publisher.in_flight)

    def _entries(self) -> Metric:
        entries: Counter[str] = Counter()
        for partition in self._partitions:
            if partition.state is None or not partition.owned:
                continue
            for (tenant, model), held in partition.state.folding.fold.view.holders.models.items():
                if tenant != PROBE_TENANT:
                    entries[self._label(model)] += held.keys
        family = GaugeMetricFamily(
            "inferencecache_index_entries",
            "Distinct prefixes held, in the partitions that this indexer owns; a sum over indexers is right.",
            labels=("model",),
        )
        for model in sorted(self._models):
            family.add_metric((model,), entries[model])
        if entries[OTHER]:
            family.add_metric((OTHER,), entries[OTHER])
        return family

    def _label(self, model: str) -> str:
        """A model that was seen keeps its series, at 0 once it has drained."""
        if model not in self._models:
            if len(self._models) >= MAX_LABELS:
                return OTHER
            self._models.add(model)
        return model

    def _last_events(self) -> Metric:
        newest: dict[tuple[str, str], int] = {}
        for partition in self._partitions:
            if partition.state is None or not partition.owned:
                continue
            for name, row in partition.state.folding.fold.view.rows.items():
                key = (name.tenant, name.replica)
                newest[key] = max(newest.get(key, 0), row.heard_us)
        family = GaugeMetricFamily(
            "inferencecache_replica_last_event_at",
            "Log time of the replica's last batch that counted, in seconds since the Unix epoch.",
            labels=("tenant", "replica"),
        )
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
                of_tenants[tenant if len(of_tenants) < MAX_LABELS or tenant in of_tenants else OTHER] += count
        family = CounterMetricFamily(
            "inferencecache_index_evictions",
            "Entries (one a prefix and replica) that the cap or their age removed, in owned partitions.",
            labels=("algorithm", "reason"),
        )
        for labels, count in sorted(evictions.items()):
            family.add_metric(labels, count)
        yield family
        family = CounterMetricFamily(
            "inferencecache_tenant_evictions",
            "Distinct prefixes that were evicted to respect a tenant's quota, in owned partitions.",
            labels=("tenant_id", "reason"),
        )
        for tenant, count in sorted(of_tenants.items()):
            family.add_metric((tenant, "over_entries"), count)
        yield family

    def _gauges(self) -> Iterator[Metric]:
        owned = _gauge("partition_owned", "1 for a partition that this indexer owns.")
        lag = _gauge("lag_seconds", "Time since the partition was last folded to the head of its log.")
        pending = _gauge("pending_messages", "Messages of the log that are not folded yet.")
        held = _gauge("held_messages", "Messages that wait here until a snapshot has been copied.")
        untold = _gauge("untold_messages", "Messages that are folded and in no stored delta yet.")
        stored = _gauge("stored_entries", "Entries of this indexer's state: one a prefix and replica.")
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
        yield from (owned, lag, pending, held, untold, stored)

    def _counters(self) -> Iterator[Metric]:
        """Counters begin again when a partition is restored, as after a restart of the process."""
        folded = _counter("messages_folded", "Messages of the log that were folded.")
        dropped = CounterMetricFamily(
            "inferencecache_indexer_dropped",
            "Batches and records of owned partitions that did not count, by reason.",
            labels=("partition", "reason"),
        )
        deltas = _counter("deltas_stored", "Deltas that were stored.")
        delta_bytes = _counter("delta_bytes_stored", "Bytes of the deltas that were stored.")
        snapshots = CounterMetricFamily(
            "inferencecache_indexer_snapshots",
            "Snapshots that were referenced after being read back, and that came to nothing.",
            labels=("partition", "result"),
        )
        resyncs = CounterMetricFamily(
            "inferencecache_indexer_resync_requests",
            "Requests sent to producers: to begin anew, or that another has begun in their place.",
            labels=("partition", "kind"),
        )
        restored = _counter("restorations", "States that were restored from a snapshot or from the log.")
        from_log = _counter("restorations_from_log", "Restorations that no snapshot served.")
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
        yield from (folded, dropped, deltas, delta_bytes, snapshots, resyncs, restored, from_log)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"inferencecache_indexer_{name}", text, labels=("partition",))


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"inferencecache_indexer_{name}", text, labels=("partition",))
