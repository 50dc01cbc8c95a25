"""The indexer as a process: one connection, one task a partition, health, metrics, an end in time.

Every partition of every generation of the layout is kept, from the moment the layout names it until it
does not any more: routers need the old generation until they have moved to the new one.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector

from inferencecache.core.log import Bucket, Entry, Gone, Log
from inferencecache.core.log.subjects import POLICY, POLICY_KEY, member_key
from inferencecache.core.partitions import Presence
from inferencecache.core.partitions.foundation import Foundation
from inferencecache.core.policy import Intent, policy_applied
from inferencecache.core.protocol.owner import OwnerSettings
from inferencecache.core.protocol.snapshots import SnapshotSettings
from inferencecache.core.service import HttpEndpoints, get_logger
from inferencecache.indexer.aggregating import Aggregating
from inferencecache.indexer.dividing import Dividing
from inferencecache.indexer.metrics import IndexerMetrics
from inferencecache.indexer.partition import PartitionIndexer, PartitionSettings
from inferencecache.indexer.settings import DEFAULT_MAX_ENTRIES, UNBOUNDED, IndexerSettings
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.members import IndexerMember
from inferencecache.schemas.records import PolicyApplied

logger = get_logger("indexer")


class _Place(NamedTuple):
    """A partition of a generation, which has so many."""

    generation: int
    number: int
    partitions: int


class Indexer:
    """All partitions of all layout generations in one process. Its id is random: one life, one id."""

    def __init__(self, settings: IndexerSettings, registry: CollectorRegistry | None = None) -> None:
        self.id = OwnerId(secrets.token_hex(6))
        self.log = Log(settings.nats, f"indexer {self.id}")
        self.partitions: list[PartitionIndexer] = []
        """All that are kept, in order of generation and number."""
        self._settings = settings
        self._intent = Intent()
        self._policy: PolicyApplied | None = None
        self._kept: dict[_Place, tuple[PartitionIndexer, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._foundation = Foundation(
            self.log, settings.assets, snapshot_period_s=settings.snapshot_interval_s
        )
        self._presence = Presence(
            self.log, member_key("indexer", self.id), self._row, replicas=settings.assets.replicas
        )
        if registry is not None:
            IndexerMetrics(registry, self.log, self.partitions)

    @property
    def ready(self) -> bool:
        """What `/readyz` says: connected, and every partition folded to within a second of the log's head."""
        return (
            self.log.connected
            and bool(self.partitions)
            and all(partition.is_ready() for partition in self.partitions)
        )

    async def run(self) -> None:
        """Index until cancelled. Raises what trying again cannot help."""
        await self.log.start()
        layout = await self._foundation.lay()
        logger.info("indexer_started", id=self.id, partitions=layout.partitions, nats=self.log.address)
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._keep_partitions(layout)
            group.create_task(self._foundation.keep(layout, self._layout_changed))
            group.create_task(self._presence.run())
            aggregating = Aggregating(self.log, self.partitions, on_missing=self._foundation.again)
            group.create_task(aggregating.run())
            group.create_task(Dividing(self.log, self.partitions).run())
            group.create_task(Bucket(self.log, POLICY).watch(self._policy_changed, keys=POLICY_KEY).run())

    def _layout_changed(self, layout: CurrentLayout) -> None:
        generations = [generation.generation for generation in layout.generations]
        logger.info("layout_changed", generations=generations, partitions=layout.partitions)
        self._keep_partitions(layout)
        self._presence.put_soon()

    def _keep_partitions(self, layout: CurrentLayout) -> None:
        """Begin with those that are new, end with those that are not there any more."""
        if self._group is None:
            raise RuntimeError("partitions are kept only while the indexer runs")
        wanted = [
            _Place(each.generation, number, each.partitions)
            for each in layout.generations
            for number in range(each.partitions)
        ]
        for place in set(self._kept) - set(wanted):
            self._kept.pop(place)[1].cancel()
        for place in wanted:
            if place not in self._kept:
                partition = self._partition(place)
                self._kept[place] = (partition, self._group.create_task(partition.run()))
        self.partitions[:] = [self._kept[place][0] for place in wanted]

    def _partition(self, place: _Place) -> PartitionIndexer:
        partition = PartitionIndexer(
            self.log,
            place.generation,
            place.number,
            self.id,
            self._partition_settings(place),
            self._presence.membership,
            on_change=self._presence.put_soon,
            on_missing=self._foundation.again,
        )
        if self._policy is not None:
            partition.policy_read(self._policy)
        return partition

    async def close(self) -> None:
        """Say goodbye and disconnect, after `run` has been cancelled."""
        await self._presence.say_goodbye()
        await self.log.close()

    def _partition_settings(self, place: _Place) -> PartitionSettings:
        settings = self._settings
        room = DEFAULT_MAX_ENTRIES if settings.max_entries == UNBOUNDED else settings.max_entries
        return PartitionSettings(
            OwnerSettings(
                delta_interval_s=settings.delta_interval_s,
                sweep_interval_s=settings.sweep_interval_s,
                max_entries=settings.max_entries,
                partition=place.number,
                partitions=place.partitions,
            ),
            SnapshotSettings(settings.snapshot_interval_s),
            capacity=max(1, room // place.partitions),
        )

    def _policy_changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Gone):
            return  # whoever writes the policy writes it again; until then it stays in force
        if not self._intent.set_policies(change.value, change.revision):
            logger.warning("policy_refused", msg=self._intent.refused)
            return
        self._policy = policy_applied(self._intent.policy_set, change.revision, OwnerId(""), 0)
        for partition in self.partitions:
            partition.policy_read(self._policy)

    def _row(self) -> IndexerMember:
        return IndexerMember(self.id, {partition.key: partition.row() for partition in self.partitions})


async def serve(settings: IndexerSettings, stop: asyncio.Event) -> int:
    """Index until `stop` is set; answers the exit code. Raises ListenError, and what ends the indexing."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    indexer = Indexer(settings, registry)
    http = HttpEndpoints(settings.http_address, lambda: indexer.ready and not stop.is_set(), registry)
    await http.start()
    running = asyncio.ensure_future(indexer.run())
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        return 0
    finally:
        logger.info("graceful_shutdown_started")
        stopped.cancel()
        running.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)
        await asyncio.gather(indexer.close(), http.stop())
        logger.info("graceful_shutdown_done")
