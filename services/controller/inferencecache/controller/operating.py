"""The controller as an operator: who leads watches the cluster, and reconciles what it sees.

Three things run side by side and none waits for another: the connection to NATS, the election, and, while
this process leads, watches, queues and ticks. Webhooks are not here: every replica answers them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from inferencecache.controller.aggregate import AggregateReader
from inferencecache.controller.kube.leases import Leadership, LeaseTimes
from inferencecache.controller.kube.observed import Change, Observed
from inferencecache.controller.kube.recording import Recorder
from inferencecache.controller.kube.watching import Watching
from inferencecache.controller.kube.writing import Writer
from inferencecache.controller.reconciling.controllers import Reconciler
from inferencecache.controller.reconciling.queue import WorkQueue
from inferencecache.controller.settings import ControllerSettings
from inferencecache.controller.ticking import Projection, Ticking
from inferencecache.core.kube.access import ClusterAccess
from inferencecache.core.kube.api import KubeApi
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    CACHE_INDICES,
    CACHE_POLICIES,
    CACHE_TENANTS,
    DEPLOYMENTS,
    PD_TOPOLOGIES,
    PODS,
    PROMPT_TEMPLATES,
    SERVICES,
    ObjectKey,
    key_of,
)
from inferencecache.core.log import Log
from inferencecache.core.log.subjects import member_key
from inferencecache.core.partitions import Presence
from inferencecache.core.partitions.foundation import Foundation
from inferencecache.core.service import get_logger
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.members import ControllerMember

WATCHED: Final = (
    CACHE_BACKENDS,
    CACHE_INDICES,
    CACHE_POLICIES,
    CACHE_TENANTS,
    PROMPT_TEMPLATES,
    PD_TOPOLOGIES,
    PODS,
    SERVICES,
    DEPLOYMENTS,
)
_REMARK_S: Final = 600.0
"""Every object is looked at again so often, whatever became of the changes that it should have followed."""

logger = get_logger("controller")


class Work(NamedTuple):
    """All that the leader does; projections in the order in which a tick makes them."""

    reconcilers: Sequence[Reconciler]
    projections: Sequence[Projection]
    background: Sequence[Callable[[], Coroutine[None, None, None]]] = ()


class Operating:
    """One process's operation; what it offers is what reconcilers work with."""

    def __init__(
        self,
        settings: ControllerSettings,
        access: ClusterAccess,
        cluster: Cluster,
        registry: CollectorRegistry,
        *,
        lease_times: LeaseTimes = LeaseTimes(),  # noqa: B008 - frozen
    ) -> None:
        self.id = secrets.token_hex(6)
        self.settings = settings
        self.registry = registry
        self.api = KubeApi(cluster)
        self.observed = Observed(WATCHED)
        self.writer = Writer(self.api, registry, self.may_write)
        self.log = Log(settings.nats, f"controller {self.id}")
        self.aggregate = AggregateReader()
        self.layout: CurrentLayout | None = None
        self.is_leading = False
        self._leadership: Leadership | None = None
        if settings.leader_elect:
            self._leadership = Leadership(self.api, settings.namespace, self.id, lease_times)
        self._queues: dict[str, WorkQueue[ObjectKey]] = {}
        self._layout_listeners: list[Callable[[CurrentLayout], None]] = []
        self._watching = Watching(access, self.api, self.observed)
        self._foundation = Foundation(self.log, settings.assets)
        self.presence = Presence(
            self.log,
            member_key("controller", self.id),
            lambda: ControllerMember(self.id),
            replicas=settings.assets.replicas,
        )

    def recorder(self, component: str) -> Recorder:
        """Records Events in the name of that component."""
        return Recorder(self.writer, component, self.id)

    def may_write(self) -> bool:
        """Is it certain that no other process leads?"""
        return self._leadership is None or self._leadership.is_certain

    def mark(self, reconciler: str, key: ObjectKey, after_s: float = 0.0) -> None:
        """Let the reconciler of that name look at a key."""
        self._queues[reconciler].mark(key, after_s)

    def lay_again(self) -> None:
        """Make streams and buckets that are missing: one was."""
        self._foundation.again()

    def on_layout(self, listener: Callable[[CurrentLayout], None]) -> None:
        """Call `listener` with the layout, as soon as it is known and whenever it has changed."""
        self._layout_listeners.append(listener)
        if self.layout is not None:
            listener(self.layout)

    async def run(self, work_of: Callable[[Operating], Work]) -> None:
        """Operate until cancelled. Raises `LeadershipLostError`, and what trying again cannot help."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_connected())
            leadership = self._leadership
            if leadership is None:
                await self._lead(work_of(self))
                return
            await leadership.acquire()
            keeping = group.create_task(leadership.keep())
            try:
                await self._lead(work_of(self))
            finally:
                keeping.cancel()  # it would take again what is given up
                await leadership.give_up()

    async def close(self) -> None:
        """Say goodbye and disconnect, after `run` has been cancelled."""
        await self.presence.say_goodbye()
        await self.log.close()

    async def _keep_connected(self) -> None:
        await self.log.start()
        layout = await self._foundation.lay()
        self._layout_changed(layout)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._foundation.keep(layout, self._layout_changed))
            group.create_task(self.presence.run())
            group.create_task(self.aggregate.run(self.log))

    def _layout_changed(self, layout: CurrentLayout) -> None:
        self.layout = self.aggregate.layout = layout
        for listener in self._layout_listeners:
            listener(layout)

    async def _lead(self, work: Work) -> None:
        """Do everything that only one process may do, until cancelled."""
        self.is_leading = True
        logger.info("controller_leads", id=self.id)
        self._queues |= {each.name: WorkQueue(each.name, each.reconcile) for each in work.reconcilers}

        def changed(change: Change) -> None:
            for reconciler in work.reconcilers:
                self._concern(reconciler, change)

        self.observed.on_change(changed)
        ticking = Ticking(self.aggregate, work.projections, self.settings.refresh_interval_s)
        async with asyncio.TaskGroup() as group:
            for queue in self._queues.values():
                group.create_task(queue.run())
            for run in work.background:
                group.create_task(run())
            group.create_task(self._watching.run())
            group.create_task(ticking.run())
            while True:
                await asyncio.sleep(_REMARK_S)
                for kind in self.observed.kinds:
                    for document in self.observed.all_of(kind):
                        changed(Change(kind, key_of(document), document, document))

    def _concern(self, reconciler: Reconciler, change: Change) -> None:
        try:
            for key in reconciler.concerns(change):
                self.mark(reconciler.name, key)
        except Exception:
            # One object of an unheard-of form must not end the watching of all others.
            logger.exception(
                "change_not_followed", queue=reconciler.name, kind=change.kind.name, object=str(change.key)
            )
