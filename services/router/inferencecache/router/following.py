"""Keeping the router's replica of the index current: every partition, the policy, and its own presence.

Everything is there, and empty, before NATS is reached; from then on partitions are followed side by
side. Once ready a router stays ready: without an owner its answers age, which it exports, and an old
hint is better than none.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from prometheus_client import CollectorRegistry

from inferencecache.core.index.credits import Credits
from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.work import AssignedWork
from inferencecache.core.log import Bucket, Entry, Gone, Log, Publisher, Watch
from inferencecache.core.log.subjects import (
    POLICY,
    POLICY_KEY,
    UnknownSubjectError,
    member_key,
    parse_policy_key,
)
from inferencecache.core.partitions import Presence
from inferencecache.core.partitions.foundation import Foundation
from inferencecache.core.policy import Intent
from inferencecache.core.service import AssetSettings, NatsSettings, get_logger
from inferencecache.core.templates import Template
from inferencecache.router.crediting import Crediting
from inferencecache.router.probing import Probing
from inferencecache.router.replica import PartitionReplica
from inferencecache.router.settings import RouterSettings
from inferencecache.router.tailing import tail_of_events
from inferencecache.router.view_metrics import ViewMetrics
from inferencecache.router.views import Deliver, TailError
from inferencecache.router.work_sharing import WorkSharing
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.members import RouterMember
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.topologies import ResolvedTopology

logger = get_logger("router")


class IndexFollowing:
    """A `LiveFollowing` over its own connection. `ready_timeout_s` counts from the start of `run`."""

    def __init__(
        self,
        nats: NatsSettings,
        assets: AssetSettings,
        ready_timeout_s: float,
        registry: CollectorRegistry | None = None,
        work: AssignedWork | None = None,
    ) -> None:
        self.id = secrets.token_hex(6)
        self.log = Log(nats, f"router {self.id}")
        self.layout: Layout | None = None
        self.replicas: list[PartitionReplica] = []
        self.intent = Intent()
        self.work = work
        self.credited = Credits()
        self._assets = assets
        self._ready_timeout_s = ready_timeout_s
        self._ready = False
        self._started_at: float | None = None
        self._grpc_address = ""
        self._policy: Watch = Bucket(self.log, POLICY).watch(self._intent_changed)
        self._presence = Presence(
            self.log, member_key("router", self.id), self._row, replicas=assets.replicas
        )
        if registry is not None:
            ViewMetrics(registry, self)

    # -- what the front ends ask -------------------------------------------------------------------

    @property
    def publisher(self) -> Publisher:
        return self.log.publisher

    @property
    def views(self) -> Sequence[IndexView]:
        """One view a partition, at its number."""
        return [replica.view for replica in self.replicas]

    @property
    def complete(self) -> bool:
        """Has every partition reached the delta that was last when it was first opened?"""
        return bool(self.replicas) and all(replica.loaded for replica in self.replicas)

    @property
    def ready(self) -> bool:
        """Complete with policy read, or out of patience; then for good."""
        if not self._ready and self._started_at is not None:
            is_late = time.monotonic() - self._started_at >= self._ready_timeout_s
            is_complete = self.complete and self._policy.ready.is_set()
            if is_late and not is_complete:
                logger.warning("ready_without_view", waited_s=self._ready_timeout_s)
            self._ready = is_complete or is_late
        return self._ready

    def now_us(self, partition: int) -> int:
        return self.replicas[partition].now_us()

    def is_proven(self, partition: int) -> bool:
        return self.replicas[partition].view.proven

    def log_sequence(self, partition: int) -> int:
        return self.replicas[partition].view.log.sequence

    def policy(self, tenant: TenantId) -> ResolvedPolicy | None:
        return self.intent.policies.policy(tenant)

    def template(self, ref: str) -> Template | None:
        return self.intent.template(ref)

    def topology(self, ref: str) -> ResolvedTopology | None:
        return self.intent.topology(ref)

    def tail(self, deliver: Deliver, on_lost: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        if self.layout is None:
            raise TailError("the event log was not reached yet")
        return tail_of_events(self.log, self.layout, deliver, on_lost)

    # -- life --------------------------------------------------------------------------------------

    async def run(self, grpc_address: str) -> None:
        """Reach NATS and follow until cancelled. Raises only what the process cannot survive."""
        self._started_at = time.monotonic()
        self._grpc_address = grpc_address
        try:
            await self.log.start()
            foundation = Foundation(self.log, self._assets)
            layout = await foundation.lay()
            self.replicas = [
                PartitionReplica(
                    self.log,
                    layout.generation,
                    number,
                    on_change=self._presence.put_soon,
                    on_missing=foundation.again,
                )
                for number in range(layout.partitions)
            ]
            self.layout = layout
            logger.info("following", partitions=layout.partitions, nats=self.log.address)
            async with asyncio.TaskGroup() as group:
                group.create_task(foundation.keep(layout))
                group.create_task(self._presence.run())
                group.create_task(self._policy.run())
                group.create_task(Crediting(self.publisher, self.id, self.credited).run(layout))
                group.create_task(Probing(self.id, self).serve(self.log))
                if self.work is not None:
                    group.create_task(WorkSharing(self.log, self.id, self.work).run())
                for replica in self.replicas:
                    group.create_task(replica.run())
        finally:
            await self._presence.say_goodbye()
            await self.log.close()

    def _intent_changed(self, change: Entry | Gone) -> None:
        """One key of the bucket. What goes with the whole bucket stays in force: whoever writes it writes
        it again.
        """
        if isinstance(change, Gone) and (change.revision == 0 or change.key == POLICY_KEY):
            return
        value = change.value if isinstance(change, Entry) else None
        if change.key == POLICY_KEY:
            if value is not None and not self.intent.set_policies(value, change.revision):
                logger.warning("policy_refused", msg=self.intent.refused)
            self._presence.put_soon()
            return
        try:
            family, ids = parse_policy_key(change.key)
        except UnknownSubjectError as error:
            logger.warning("policy_key_unknown", msg=str(error))
            return
        ref = "/".join(ids)
        if (family == "template" and not self.intent.set_template(ref, value)) or (
            family == "topology" and not self.intent.set_topology(ref, value)
        ):
            logger.warning("policy_value_unreadable", key=change.key)

    def _row(self) -> RouterMember:
        partitions = {replica.key: replica.row() for replica in self.replicas}
        return RouterMember(self.id, self.intent.revision, partitions, self._grpc_address)


def follow(settings: RouterSettings, registry: CollectorRegistry) -> IndexFollowing:
    """The index that a router with these settings serves."""
    work = AssignedWork(settings.load_decay_s) if settings.balanced_ranking else None
    return IndexFollowing(settings.nats, settings.assets, settings.ready_timeout_s, registry, work)
