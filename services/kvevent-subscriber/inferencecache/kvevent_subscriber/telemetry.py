"""The sidecar's metrics [SUB-188]: counters as the pure parts keep them, gauges read when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from inferencecache.core.service import CounterMeasure, GaugeMeasure, Queue, queue_metrics

PREFIX: Final = "inferencecache_subscriber_"


def _counter(name: str, text: str, unproven: str, labels: tuple[str, ...] = ()) -> CounterMeasure:
    return CounterMeasure(PREFIX + name, text, unproven, labels)


COUNTERS: Final = (
    _counter(
        "messages",
        "Messages received on the live sockets; replayed ones are not among them.",
        "that they could be read",
    ),
    _counter("events", "Events applied, by type.", "that they changed anything", ("type",)),
    _counter(
        "records",
        "Records handed to the log's producer, by kind; statistics once the log has them.",
        "that the log has stored them; the published batches do",
        ("kind",),
    ),
    _counter(
        "published_batches",
        "Batches that the log has acknowledged.",
        "that they counted: indexers count what they drop",
    ),
    _counter(
        "begins",
        "Incarnations begun: one at start, one for each resync and each restart of the engine.",
        "that anything was lost",
    ),
    _counter(
        "outbox_overflows",
        "Times the outbox ran over and everything was sent anew.",
        "that anything is missing in the index now",
    ),
    _counter(
        "outbox_dropped_records",
        "Records dropped by that; what they said was told again afterwards.",
        "that anything is missing in the index now",
    ),
    _counter(
        "malformed_batches",
        "Messages that could not be read at all.",
        "what they would have said",
        ("reason",),
    ),
    _counter(
        "malformed_events",
        "Events that could not be read; the rest of their message counted.",
        "what they would have said",
        ("reason",),
    ),
    _counter("unknown_events", "Events of a type that this version does not know.", "that they mattered"),
    _counter(
        "bad_sequence_frame",
        "Messages whose number could not be read; they were applied without.",
        "that none before them is missing",
    ),
    _counter(
        "missed_messages",
        "Messages of the engine that did not arrive live.",
        "that they are lost: a replay may have brought them",
    ),
    _counter(
        "unrecovered_messages",
        "Messages of the engine that are lost for good, or were never sent.",
        "that they said anything about blocks",
    ),
    _counter("duplicates", "Messages that had been applied before.", "that the engine restarted"),
    _counter(
        "engine_restarts",
        "Times the engine was, or had to be taken for, another process.",
        "that it really was one",
        ("reason",),
    ),
    _counter("replays", "Exchanges with the replay socket.", "that it answered", ("purpose",)),
    _counter(
        "replays_timed_out",
        "Exchanges that ended without their end marker.",
        "that they brought nothing",
    ),
    _counter(
        "replays_abandoned",
        "Exchanges given up: too much waited, or the connection was lost.",
        "that a later one did not succeed",
    ),
    _counter(
        "replayed_messages",
        "Messages applied from replays.",
        "that they were missed: a replay at the start brings all there are",
    ),
    _counter(
        "ignored_medium",
        "Events about media that are not this replica's own.",
        "that no other replica is credited for them",
    ),
    _counter(
        "ignored_group",
        "Stores of cache groups other than the reference group.",
        "that the reference group holds the same blocks",
    ),
    _counter(
        "block_size_mismatch",
        "Stores with blocks of another size.",
        "that lookups use the size of the others",
    ),
    _counter(
        "token_mismatch",
        "Stores whose tokens do not match their blocks.",
        "which of the two was wrong",
    ),
    _counter("no_tokens", "Stores without tokens.", "that the engine cannot send them: it may be a setting"),
    _counter(
        "orphan_events",
        "Stores whose parent block was not known.",
        "that their blocks stay unknown: a parent may come later",
    ),
    _counter("orphans_chained", "Held stores whose parent became known.", "that all of a chain became known"),
    _counter(
        "orphans_dropped",
        "Held stores given up for want of room or because of a gap.",
        "that the engine still holds their blocks",
    ),
    _counter(
        "placeholder_unknown",
        "Blocks of an offload tier that were named only by a hash nobody knew.",
        "that they are lost: they are known once the engine stores them again",
    ),
    _counter(
        "foreign_t2_ignored",
        "Stores of an offload tier that could not be attributed safely.",
        "that they were another replica's",
    ),
    _counter(
        "opaque_blocks",
        "Blocks that depend on more than their tokens; they are never reported.",
        "that they are reused",
    ),
    _counter(
        "unmapped_adapter",
        "Stores of adapters without a name.",
        "that requests for these adapters come",
    ),
    _counter(
        "unknown_removed",
        "Removals of blocks that were not known.",
        "that a store was missed: blocks that are never reported are removed too",
    ),
    _counter(
        "overflow_dropped",
        "Blocks given up because of --max-tracked-blocks.",
        "that the engine has let go of them",
    ),
    _counter(
        "predictions_expired",
        "Predicted T2 keys withdrawn because nothing confirmed them.",
        "that the tier does not hold them",
    ),
    _counter(
        "scrapes_failed",
        "Reads of the engine's metrics page that told nothing.",
        "that the engine is down",
    ),
)
"""Named as the diary counts them; with a label, its value is the reason that the diary notes."""


ReadCounters = Callable[[], Counter[tuple[str, str]]]
"""Reads one replica's counters, by name and reason."""


class Gauges(NamedTuple):
    """What a sidecar reads when asked; see the text of each in `GAUGES`."""

    tracked_blocks: int
    block_size: int
    outbox_records: int
    last_event_timestamp_seconds: float


GAUGES: Final = (
    GaugeMeasure(PREFIX + "tracked_blocks", "Blocks remembered.", "that the index holds as many"),
    GaugeMeasure(
        PREFIX + "block_size", "Tokens a block; 0 while not known.", "that gateways fingerprint with the same"
    ),
    GaugeMeasure(PREFIX + "outbox_records", "Records that wait to be sent.", "that NATS can be reached"),
    GaugeMeasure(
        PREFIX + "last_event_timestamp_seconds",
        "Time the engine wrote into its newest event, by the engine's clock.",
        "that the engine has nothing newer to say",
    ),
)
"""One for each field of `Gauges`."""


class SubscriberCollector(Collector):
    """Everything on the metrics page. The counters of several replicas add up."""

    def __init__(
        self,
        replicas: Iterable[ReadCounters],
        gauges: Callable[[], Gauges],
        queues: Callable[[], Iterable[Queue]],
    ) -> None:
        self._replicas = tuple(replicas)
        self._gauges = gauges
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """One family a name, every counter from the start on."""
        totals = sum((read() for read in self._replicas), Counter[tuple[str, str]]())
        for measure in COUNTERS:
            family = measure.family()
            name = measure.name.removeprefix(PREFIX)
            by_reason = {reason: amount for (counted, reason), amount in totals.items() if counted == name}
            if measure.labels:
                for reason, amount in by_reason.items():
                    family.add_metric([reason], amount)
            else:
                family.add_metric([], sum(by_reason.values()))
            yield family
        for gauge, value in zip(GAUGES, self._gauges(), strict=True):
            yield gauge.family(value)
        yield from queue_metrics("subscriber", self._queues())


def registry_of(
    replicas: Iterable[ReadCounters],
    gauges: Callable[[], Gauges],
    queues: Callable[[], Iterable[Queue]],
) -> CollectorRegistry:
    """A registry with the sidecar's metrics and nothing else."""
    registry = CollectorRegistry()
    registry.register(SubscriberCollector(replicas, gauges, queues))
    return registry
