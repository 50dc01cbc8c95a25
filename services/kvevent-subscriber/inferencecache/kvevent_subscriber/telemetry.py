"""The sidecar's metrics [SUB-188]: counters as the pure parts keep them, gauges read when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX: Final = "inferencecache_subscriber_"

COUNTERS: Final[dict[str, tuple[str, str]]] = {
    "messages": ("", "Messages received on the live sockets; replayed ones are not among them."),
    "events": ("type", "Events applied, by type; not that they changed anything."),
    "records": ("kind", "Records handed to the log's producer, by kind; statistics once the log has them."),
    "published_batches": ("", "Batches that the log has acknowledged."),
    "begins": ("", "Incarnations begun: one at start, one for each resync and each restart of the engine."),
    "outbox_overflows": ("", "Times the outbox ran over and everything was sent anew."),
    "outbox_dropped_records": ("", "Records dropped by that; what they said was told again afterwards."),
    "malformed_batches": ("reason", "Messages that could not be read at all."),
    "malformed_events": ("reason", "Events that could not be read; the rest of their message counted."),
    "unknown_events": ("", "Events of a type that this version does not know."),
    "bad_sequence_frame": ("", "Messages whose number could not be read; they were applied without."),
    "missed_messages": (
        "",
        "Messages of the engine that did not arrive live; a replay may have brought them.",
    ),
    "unrecovered_messages": ("", "Messages of the engine that are lost for good, or were never sent."),
    "duplicates": ("", "Messages that had been applied before."),
    "engine_restarts": ("reason", "Times the engine was, or had to be taken for, another process."),
    "replays": ("purpose", "Exchanges with the replay socket; not that it answered."),
    "replays_timed_out": ("", "Exchanges that ended without their end marker."),
    "replays_abandoned": ("", "Exchanges given up: too much waited, or the connection was lost."),
    "replayed_messages": ("", "Messages applied from replays."),
    "ignored_medium": ("", "Events about media that are not this replica's own."),
    "ignored_group": ("", "Stores of cache groups other than the reference group."),
    "block_size_mismatch": ("", "Stores with blocks of another size."),
    "token_mismatch": ("", "Stores whose tokens do not match their blocks."),
    "no_tokens": ("", "Stores without tokens."),
    "orphan_events": ("", "Stores whose parent block was not known."),
    "orphans_chained": ("", "Held stores whose parent became known."),
    "orphans_dropped": ("", "Held stores given up for want of room or because of a gap."),
    "placeholder_unknown": ("", "Blocks of an offload tier that were named only by a hash nobody knew."),
    "foreign_t2_ignored": ("", "Stores of an offload tier that could not be attributed safely."),
    "opaque_blocks": ("", "Blocks that depend on more than their tokens; they are never reported."),
    "unmapped_adapter": ("", "Stores of adapters without a name."),
    "unknown_removed": ("", "Removals of blocks that were not known."),
    "overflow_dropped": ("", "Blocks given up because of --max-tracked-blocks."),
    "predictions_expired": ("", "Predicted T2 keys withdrawn because nothing confirmed them."),
    "scrapes_failed": ("", "Reads of the engine's metrics page that told nothing."),
}
"""Label and help of every counter, by its name without prefix and `_total`."""


ReadCounters = Callable[[], Counter[tuple[str, str]]]
"""Reads one replica's counters, by name and reason."""


class Gauges(NamedTuple):
    """What a sidecar reads when asked; see the help of each in `SubscriberCollector`."""

    tracked_blocks: int
    block_size: int
    outbox_records: int
    last_event_timestamp_seconds: float


GAUGES: Final = Gauges._fields
GAUGE_HELP: Final = (
    "Blocks remembered.",
    "Tokens a block; 0 while not known.",
    "Records that wait to be sent.",
    "Time the engine wrote into its newest event, by the engine's clock.",
)


class SubscriberCollector(Collector):
    """Everything on the metrics page. The counters of several replicas add up."""

    def __init__(self, replicas: Iterable[ReadCounters], gauges: Callable[[], Gauges]) -> None:
        self._replicas = tuple(replicas)
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """One family a name, every counter from the start on."""
        totals = sum((read() for read in self._replicas), Counter[tuple[str, str]]())
        for name, (label, text) in COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=[label] if label else [])
            by_reason = {reason: amount for (counted, reason), amount in totals.items() if counted == name}
            if label:
                for reason, amount in by_reason.items():
                    family.add_metric([reason], amount)
            else:
                family.add_metric([], sum(by_reason.values()))
            yield family
        for name, text, value in zip(GAUGES, GAUGE_HELP, self._gauges(), strict=True):
            yield GaugeMetricFamily(PREFIX + name, text, value=value)


def registry_of(replicas: Iterable[ReadCounters], gauges: Callable[[], Gauges]) -> CollectorRegistry:
    """A registry with the sidecar's metrics and nothing else."""
    registry = CollectorRegistry()
    registry.register(SubscriberCollector(replicas, gauges))
    return registry
