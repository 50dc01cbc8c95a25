"""Keeping the router's replica of the index current: every partition, the policy, and its own presence.

Everything is there, and empty, before NATS is reached; from then on partitions are followed side by
side. Once ready a router stays ready: without an owner its answers age, which it exports, and an old
hint is better than none. When the layout changes, the views of its new generation are built beside those
that answer, and replace them between two calls.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from inferencecache.core.index.credits import Credits
from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.work import AssignedWork
from inferencecache.core.log import (
    ApiError,
    Bucket,
    Entry,
    Gone,
    Log,
    NoAnswerError,
    Publisher,
    Watch,
    read_members,
)
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
from inferencecache.router.explaining import Explaining
from inferencecache.router.generations import FollowedGenerations
from inferencecache.router.probing import Probing
from inferencecache.router.replica import PartitionReplica
from inferencecache.router.restriction import EVERYTHING, Restriction
from inferencecache.router.settings import RouterSettings
from inferencecache.router.tailing import tail_of_events
from inferencecache.router.view_metrics import ViewMetrics
from inferencecache.router.views import Deliver, Explain, TailError
from inferencecache.router.work_sharing import WorkSharing
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Layout
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
        restriction: Restriction = EVERYTHING,
        *,
        block_size: int = 0,
    ) -> None:
        self.id = secrets.token_hex(6)
        self.log = Log(nats, f"router {self.id}")
        self.newest_layout: CurrentLayout | None = None
        self.restriction = restriction
        self.intent = Intent()
        self.work = work
        self.credited = Credits()
        self._ready_timeout_s = ready_timeout_s
        self._block_size = block_size
        self._ready = False
        self._started_at: float | None = None
        self._grpc_address = ""
        self._intent_revision = 0
        self._intent_keys: set[str] = set()
        self._foundation = Foundation(self.log, assets)
        self._tails: set[Callable[[], None]] = set()
        self._policy: Watch = Bucket(self.log, POLICY).watch(self._intent_changed)
        self._presence = Presence(
            self.log, member_key("router", self.id), self._row, replicas=assets.replicas
        )
        self._followed = FollowedGenerations(
            self.log,
            restriction,
            on_change=self._presence.put_soon,
            on_missing=self._foundation.again,
        )
        self.generations = self._followed.choice
        self.swaps = self._followed.swaps
        if registry is not None:
            ViewMetrics(registry, self)

    # -- what the front ends ask -------------------------------------------------------------------

    @property
    def publisher(self) -> Publisher:
        return self.log.publisher

    @property
    def layout(self) -> Layout | None:
        return self._followed.served.layout if self._followed.served is not None else None

    @property
    def replicas(self) -> list[PartitionReplica]:
        """The partitions that are followed, of the generation that answers."""
        return self._followed.served.replicas if self._followed.served is not None else []

    @property
    def views(self) -> Sequence[IndexView]:
        return self._followed.served.views if self._followed.served is not None else []

    @property
    def complete(self) -> bool:
        return self._followed.served is not None and self._followed.served.loaded

    def serves(self, tenant: TenantId, model: ModelId) -> bool:
        return self.restriction.serves(tenant, model)

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
        return self._replica(partition).now_us()

    def is_proven(self, partition: int) -> bool:
        return self._replica(partition).view.proven

    def log_sequence(self, partition: int) -> int:
        return self._replica(partition).view.log.sequence

    def _replica(self, partition: int) -> PartitionReplica:
        replica = self._followed.served.replica(partition) if self._followed.served is not None else None
        if replica is None:
            raise LookupError(f"partition {partition} is not followed")
        return replica

    def policy(self, tenant: TenantId) -> ResolvedPolicy | None:
        return self.intent.policies.policy(tenant)

    def template(self, ref: str) -> Template | None:
        return self.intent.template(ref)

    def topology(self, ref: str) -> ResolvedTopology | None:
        return self.intent.topology(ref)

    @asynccontextmanager
    async def tail(self, deliver: Deliver, on_lost: Callable[[], None]) -> AsyncIterator[None]:
        if self.newest_layout is None:
            raise TailError("the event log was not reached yet")
        self._tails.add(on_lost)
        try:
            async with tail_of_events(self.log, self.newest_layout, deliver, on_lost):
                yield
        finally:
            self._tails.discard(on_lost)

    # -- life --------------------------------------------------------------------------------------

    async def run(self, grpc_address: str, explain: Explain | None = None) -> None:
        """Reach NATS and follow until cancelled. Raises only what the process cannot survive."""
        self._started_at = time.monotonic()
        self._grpc_address = grpc_address
        try:
            await self.log.start()
            layout = await self._foundation.lay()
            is_served = bool(layout.older) and await self._is_served_elsewhere(layout)
            async with asyncio.TaskGroup() as group:
                self.newest_layout = layout
                group.create_task(self._followed.run(layout, is_served=is_served))
                group.create_task(self._foundation.keep(layout, self._layout_changed))
                group.create_task(self._presence.run())
                group.create_task(self._policy.run())
                group.create_task(Crediting(self.publisher, self.id, self.credited).run(lambda: self.layout))
                if not self.restriction:
                    group.create_task(Probing(self.id, self).serve(self.log))
                if explain is not None:
                    explaining = Explaining(self.id, explain)
                    group.create_task(explaining.serve_own(self.log))
                    if not self.restriction:
                        group.create_task(explaining.serve_any(self.log))
                if self.work is not None:
                    group.create_task(WorkSharing(self.log, self.id, self.work).run())
        finally:
            await self._presence.say_goodbye()
            await self.log.close()

    async def _is_served_elsewhere(self, layout: CurrentLayout) -> bool:
        """Does another router answer by the generation in force?"""
        try:
            routers = await read_members(self.log, RouterMember)
        except (ApiError, NoAnswerError) as error:
            logger.info("routers_not_read", error=str(error))
            return False
        return any(router.generation == layout.generation for router in routers)

    def _layout_changed(self, layout: CurrentLayout) -> None:
        """Producers' records go to the newest generation at once; lookups follow when it can answer them."""
        is_moved = self.newest_layout is None or self.newest_layout.in_force != layout.in_force
        self.newest_layout = layout
        self._followed.changed(layout)
        if is_moved:
            for on_lost in list(self._tails):
                on_lost()

    def _intent_changed(self, change: Entry | Gone) -> None:
        """One key of the bucket. What goes with the whole bucket stays in force: whoever writes it writes
        it again.
        """
        self._note_read(change)
        if isinstance(change, Gone) and (change.revision == 0 or change.key == POLICY_KEY):
            return
        value = change.value if isinstance(change, Entry) else None
        if change.key == POLICY_KEY:
            if value is not None and not self.intent.set_policies(value, change.revision):
                logger.warning("policy_refused", msg=self.intent.refused)
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

    def _note_read(self, change: Entry | Gone) -> None:
        """For those who wait until routers have read what they wrote."""
        if isinstance(change, Entry):
            self._intent_keys.add(change.key)
        else:
            self._intent_keys.discard(change.key)
        if change.revision or not self._intent_keys:  # with its last key a bucket is gone
            self._intent_revision = change.revision
        self._presence.put_soon()

    def _row(self) -> RouterMember:
        partitions = {replica.key: replica.row() for replica in self._followed.replicas}
        served = self.layout.generation if self.layout is not None else 0
        return RouterMember(
            self.id,
            self.intent.revision,
            partitions,
            self._grpc_address,
            served,
            self._intent_revision,
            self._block_size,
        )


def follow(settings: RouterSettings, registry: CollectorRegistry) -> IndexFollowing:
    """The index that a router with these settings serves."""
    work = AssignedWork(settings.load_decay_s) if settings.balanced_ranking else None
    return IndexFollowing(
        settings.nats,
        settings.assets,
        settings.ready_timeout_s,
        registry,
        work,
        settings.restriction,
        block_size=settings.block_size,
    )
