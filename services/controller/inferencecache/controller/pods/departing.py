"""Saying in the log that an engine's pod is gone, so that routers stop sending to it [architecture 6].

A pod that is deleted is gone, and so is one that has ended: its name may stay, but it never runs again.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from inferencecache.controller.backend.engine_pods import is_finished
from inferencecache.controller.injection.pods import find, metadata_of, parts
from inferencecache.controller.injection.subscriber import SUBSCRIBER_NAME
from inferencecache.controller.kube.observed import Change
from inferencecache.core.kube.kinds import PODS, Document, key_of, uid_of
from inferencecache.core.kube.marks import INJECTED_BY
from inferencecache.core.log import Log, NotStoredError
from inferencecache.core.log.subjects import control_subject
from inferencecache.core.protocol.departures import Append, Departures
from inferencecache.core.service import get_logger
from inferencecache.schemas.ids import ReplicaId, TenantId
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.records import Batch, Gone, encode_batch

RETRY_S: Final = 0.5
_STORE_LIMIT_S: Final = 2.0
_MOST_RECORDS: Final = 1000
"""Of one message; with the longest names about half of what one may carry."""
MOST_WAITING: Final = 20_000
"""Of one partition. What comes on top replaces the oldest: routers leave a pod for its silence too."""

logger = get_logger("departing")


class _Place(NamedTuple):
    generation: int
    partition: int


class Departing:
    """Appends what `changed` finds until it is stored, to every partition that `laid_out` knows."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._departures = Departures()
        self._generations: frozenset[int] = frozenset()
        self._pending: defaultdict[_Place, dict[Gone, None]] = defaultdict(dict)
        """What is not stored yet, the oldest first."""
        self._wanted = asyncio.Event()

    def changed(self, change: Change) -> None:
        """A pod came, changed or went."""
        for gone in departed(change):
            logger.info("pod_gone", tenant=gone.tenant, replica=gone.replica, pod_uid=gone.pod_uid)
            self._add(self._departures.gone(self._clock(), gone))

    def laid_out(self, layout: CurrentLayout) -> None:
        """The layout, at first and whenever it has changed."""
        self._generations = frozenset(each.generation for each in layout.generations)
        self._add(self._departures.told(self._clock(), layout))

    @property
    def waiting(self) -> int:
        """Departures that are not stored yet, in the partition where most are."""
        return max(map(len, self._pending.values()), default=0)

    async def run(self) -> None:
        """Append until cancelled; after every reconnect what is recent once more."""
        stop_listening = self._log.on_connected(self._reconnected)
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await asyncio.gather(*(self._append(place) for place in tuple(self._pending)))
                if self._pending:
                    await asyncio.sleep(RETRY_S)
                    self._wanted.set()
        finally:
            stop_listening()

    def _reconnected(self) -> None:
        self._add(self._departures.reconnected(self._clock()))

    def _add(self, appends: Iterable[Append]) -> None:
        for generation, partition, record in appends:
            waiting = self._pending[_Place(generation, partition)]
            waiting[record] = None
            if len(waiting) > MOST_WAITING:
                oldest = next(iter(waiting))
                del waiting[oldest]
                logger.warning("departure_dropped", tenant=oldest.tenant, replica=oldest.replica)
            self._wanted.set()

    async def _append(self, place: _Place) -> None:
        """What is not stored is kept for later, unless nothing will ever store it."""
        subject = control_subject(*place, "c")
        records = tuple(self._pending[place])
        for first in range(0, len(records), _MOST_RECORDS):
            batch = records[first : first + _MOST_RECORDS]
            payload = encode_batch(Batch(records=batch))
            try:
                await self._log.publisher.publish(subject, payload, timeout_s=_STORE_LIMIT_S)
            except NotStoredError as error:
                is_kept = error.retryable and place.generation in self._generations
                logger.warning("departure_not_stored", again=is_kept, error=str(error))
                if not is_kept:
                    self._forget(place, records[first:])
                return
            self._forget(place, batch)

    def _forget(self, place: _Place, records: Iterable[Gone]) -> None:
        waiting = self._pending[place]
        for record in records:
            waiting.pop(record, None)
        if not waiting:
            del self._pending[place]


def departed(change: Change) -> list[Gone]:
    """Engine pods that a change shows to be gone."""
    if change.kind != PODS:
        return []
    gone: list[Document] = []
    before, after = change.before, change.after
    if before is not None and (after is None or change.is_new):
        gone.append(before)
    if (
        after is not None
        and is_finished(after)
        and (before is None or change.is_new or not is_finished(before))
    ):
        gone.append(after)
    return [_identity(pod) for pod in gone if _is_engine(pod)]


def _is_engine(pod: Document) -> bool:
    """Whether it was wired, or has the sidecar without having been."""
    spec = pod.get("spec") or {}
    containers = (*parts(spec, "containers"), *parts(spec, "initContainers"))
    return INJECTED_BY in metadata_of(pod, "annotations") or find(containers, SUBSCRIBER_NAME) is not None


def _identity(pod: Document) -> Gone:
    """As the sidecar of a pod calls it: the namespace is the tenant."""
    namespace, name = key_of(pod)
    return Gone(TenantId(namespace), ReplicaId(name), uid_of(pod))
