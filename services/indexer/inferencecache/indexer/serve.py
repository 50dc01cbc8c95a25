"""The indexer as a process: one connection, one task a partition, health, metrics, an end in time."""

from __future__ import annotations

import asyncio
import secrets

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
from inferencecache.indexer.metrics import IndexerMetrics
from inferencecache.indexer.partition import PartitionIndexer, PartitionSettings
from inferencecache.indexer.settings import DEFAULT_MAX_ENTRIES, UNBOUNDED, IndexerSettings
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.members import IndexerMember

logger = get_logger("indexer")


class Indexer:
    """All partitions of one layout generation in one process. Its id is random: one life, one id."""

    def __init__(self, settings: IndexerSettings, registry: CollectorRegistry | None = None) -> None:
        self.id = OwnerId(secrets.token_hex(6))
        self.log = Log(settings.nats, f"indexer {self.id}")
        self.partitions: list[PartitionIndexer] = []
        self._settings = settings
        self._intent = Intent()
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
        settings = self._settings
        await self.log.start()
        foundation = Foundation(self.log, settings.assets, snapshot_period_s=settings.snapshot_interval_s)
        layout = await foundation.lay()
        per_partition = self._partition_settings(layout)
        self.partitions += [
            PartitionIndexer(
                self.log,
                layout.generation,
                number,
                self.id,
                per_partition,
                self._presence.membership,
                on_change=self._presence.put_soon,
                on_missing=foundation.again,
            )
            for number in range(layout.partitions)
        ]
        logger.info("indexer_started", id=self.id, partitions=layout.partitions, nats=self.log.address)
        async with asyncio.TaskGroup() as group:
            group.create_task(foundation.keep(layout))
            group.create_task(self._presence.run())
            group.create_task(Aggregating(self.log, self.partitions).run())
            group.create_task(Bucket(self.log, POLICY).watch(self._policy_changed, keys=POLICY_KEY).run())
            for partition in self.partitions:
                group.create_task(partition.run())

    async def close(self) -> None:
        """Say goodbye and disconnect, after `run` has been cancelled."""
        await self._presence.say_goodbye()
        await self.log.close()

    def _partition_settings(self, layout: Layout) -> PartitionSettings:
        settings = self._settings
        room = DEFAULT_MAX_ENTRIES if settings.max_entries == UNBOUNDED else settings.max_entries
        return PartitionSettings(
            OwnerSettings(
                delta_interval_s=settings.delta_interval_s,
                sweep_interval_s=settings.sweep_interval_s,
                max_entries=settings.max_entries,
                partitions=layout.partitions,
            ),
            SnapshotSettings(settings.snapshot_interval_s),
            capacity=max(1, room // layout.partitions),
        )

    def _policy_changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Gone):
            return  # whoever writes the policy writes it again; until then it stays in force
        if not self._intent.set_policies(change.value, change.revision):
            logger.warning("policy_refused", msg=self._intent.refused)
            return
        policy = policy_applied(self._intent.policy_set, change.revision, OwnerId(""), 0)
        for partition in self.partitions:
            partition.policy_read(policy)

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
