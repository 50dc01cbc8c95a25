"""What each backend's engines have in the index: `status.indexParticipation` [CTL-159..166].

A row of the aggregate is a pod's, and a pod is a backend's: the one that wired it, else the first whose
selector matches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.controller.aggregate import Source
from inferencecache.controller.backend.references import read_reference
from inferencecache.controller.index.tier2_series import Tier2Series
from inferencecache.controller.injection.pods import metadata_of
from inferencecache.controller.kube.writing import Writer
from inferencecache.core.index.aggregate import Tier2, rate_text, tier2_of
from inferencecache.core.kube.api import KubeApi, KubeError
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.conditions import read_timestamp, timestamp
from inferencecache.core.kube.kinds import CACHE_BACKENDS, PODS, Document, ObjectKey, key_of
from inferencecache.core.kube.marks import INJECTED_BY
from inferencecache.core.kube.selection import matches
from inferencecache.core.service import get_logger
from inferencecache.schemas.aggregate import NEVER, Aggregate, AggregateReplica

FIELD: Final = "indexParticipation"
_RANK: Final = "@dp"

logger = get_logger("participation")

Pods = Mapping[str, Mapping[str, Document] | None]
"""Pods by namespace and name; None for a namespace whose pods could not be read."""


class Participation(NamedTuple):
    """Of one backend; `last_event_at` is empty without any."""

    prefixes: int = 0
    last_event_at: str = ""
    tier2: Tier2 = Tier2()

    @property
    def status(self) -> Document:
        """As it is published."""
        status: Document = {"prefixCount": self.prefixes}
        if self.last_event_at:
            status["lastEventAt"] = self.last_event_at
        if (rate := self.tier2.rate) is not None:
            status["t2HitRate"] = rate_text(rate)
        return status


class ParticipationProjection:
    """Tells backends, and their tier-2 series."""

    name = "participation"
    is_required = False

    def __init__(self, api: KubeApi, writer: Writer, series: Tier2Series) -> None:
        self._api = api
        self._writer = writer
        self._series = series

    async def prepare(self) -> None:
        """Nothing has to be there first."""

    async def stale(self, problem: str) -> None:
        """An outage takes nothing away [CTL-166]."""

    async def project(self, source: Source) -> None:
        """Raises `KubeError` when backends cannot be listed; one that cannot be written is only logged."""
        backends = (await self._api.list_all(CACHE_BACKENDS)).items
        pods = await self._pods_for(source.aggregate, backends)
        found = participations(source.aggregate, backends, pods)
        for backend in backends:
            participation = found.get(key_of(backend))
            if participation is None or not is_told(Backend(backend), participation):
                continue
            try:
                await self._writer.set_status(CACHE_BACKENDS, backend, {FIELD: participation.status})
            except KubeError as error:
                logger.warning("participation_not_written", object=str(key_of(backend)), error=str(error))
        self._series.update({key_of(backend): _tier2(found.get(key_of(backend))) for backend in backends})

    async def _pods_for(self, aggregate: Aggregate, backends: Sequence[Document]) -> Pods:
        """Only of namespaces that have both rows and backends."""
        reporting = {replica.tenant for replica in aggregate.replicas}
        pods: dict[str, Mapping[str, Document] | None] = {}
        for namespace in sorted({key_of(backend).namespace for backend in backends} & reporting):
            try:
                listing = await self._api.list_all(PODS, namespace)
            except KubeError as error:
                logger.warning("pods_not_listed", namespace=namespace, error=str(error))
                pods[namespace] = None
            else:
                pods[namespace] = {key_of(pod).name: pod for pod in listing.items}
        return pods


def participations(
    aggregate: Aggregate, backends: Sequence[Document], pods: Pods
) -> dict[ObjectKey, Participation]:
    """By backend; those of a namespace whose pods could not be read are left out [CTL-161]."""
    rows: dict[ObjectKey, list[AggregateReplica]] = {}
    read: dict[str, list[Backend]] = {}
    for document in backends:
        key = key_of(document)
        if pods.get(key.namespace, {}) is not None:
            rows[key] = []
            read.setdefault(key.namespace, []).append(Backend(document))
    for row in aggregate.replicas:
        namespace = row.tenant or ""
        pod = (pods.get(namespace) or {}).get(row.replica_id.partition(_RANK)[0])
        owner = None if pod is None else _owner_of(pod, read.get(namespace, ()))
        if owner in rows:
            rows[owner].append(row)
    return {key: _participation(of_backend) for key, of_backend in rows.items()}


def _owner_of(pod: Document, backends: Sequence[Backend]) -> ObjectKey | None:
    """Of the backends of the pod's namespace. The one that wired the pod is not replaced by another when it
    is gone [CTL-160].
    """
    wired_by = read_reference(metadata_of(pod, "annotations").get(INJECTED_BY) or "")
    if wired_by is not None and wired_by.namespace == key_of(pod).namespace:
        return wired_by
    labels = metadata_of(pod, "labels")
    selecting = [backend.name for backend in backends if matches(backend.match_labels, labels)]
    return ObjectKey(key_of(pod).namespace, min(selecting)) if selecting else None


def is_told(backend: Backend, participation: Participation) -> bool:
    """Whether it is written: a backend that never had engines is left without [CTL-163, CTL-164]."""
    return bool(backend.match_labels) or FIELD in backend.status or participation != Participation()


def _participation(rows: Sequence[AggregateReplica]) -> Participation:
    moments = [read_timestamp(row.last_event_at) for row in rows if row.last_event_at != NEVER]
    return Participation(
        prefixes=sum(row.prefix_count for row in rows),
        last_event_at=timestamp(max(moments)) if moments else "",
        tier2=tier2_of(rows),
    )


def _tier2(participation: Participation | None) -> Tier2 | None:
    return None if participation is None else participation.tier2
