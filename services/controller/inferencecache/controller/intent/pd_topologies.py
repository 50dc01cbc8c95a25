"""PDTopology objects with the replicas that are in their pools now.

A pool's replicas are the ready engine pods of the object's namespace that have the pool's labels; a
replica is named like its pod, and each data-parallel rank that the index knows of it is one too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from inferencecache.controller.aggregate import Source
from inferencecache.controller.intent.published import Resolved
from inferencecache.controller.kube.observed import Change, Observed, has_labels
from inferencecache.core.kube.backends import section
from inferencecache.core.kube.conditions import conditions_of
from inferencecache.core.kube.kinds import PD_TOPOLOGIES, PODS, Document, ObjectKey, key_of
from inferencecache.core.log.subjects import topology_key
from inferencecache.core.policy import resolve_topology
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.resources import AnyResource, PDTopology, Pool

_RANK: str = "@dp"


class PublishedTopologies:
    """Under `topology.<namespace>.<name>`; also a projection, for the ranks that the index knows."""

    kind = PD_TOPOLOGIES
    name = "pdtopologies"
    is_required = False

    def __init__(self, observed: Observed, look_again: Callable[[ObjectKey], None]) -> None:
        """`look_again` has a topology published anew."""
        self._observed = observed
        self._look_again = look_again
        self._ranks: Mapping[ObjectKey, frozenset[str]] = {}

    def bucket_key(self, key: ObjectKey) -> str:
        """The key of a topology in the bucket."""
        return topology_key(*key)

    def resolve(self, resource: AnyResource) -> Resolved:
        """The topology with the replicas of each pool."""
        if not isinstance(resource, PDTopology):
            raise TypeError(type(resource).__name__)
        namespace = resource.metadata.namespace

        def replicas_of(pool: Pool) -> Iterable[ReplicaId]:
            if not pool.match_labels:  # selects none, never all
                return
            for pod in self._observed.in_namespace(PODS, namespace, pool.match_labels):
                if is_serving(pod):
                    yield from map(ReplicaId, (key_of(pod).name, *self._ranks.get(key_of(pod), ())))

        return Resolved(msgspec.json.encode(resolve_topology(resource, replicas_of)))

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """Topologies of a pod's namespace, one of whose pools it enters or leaves."""
        if change.kind != PODS:
            return ()
        topologies = self._observed.in_namespace(PD_TOPOLOGIES, change.key.namespace)
        return tuple(
            key_of(topology)
            for topology in topologies
            if any(
                _serves(change.before, labels) != _serves(change.after, labels) for labels in _pools(topology)
            )
        )

    # -- the tick ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Nothing has to be there."""

    async def project(self, source: Source) -> None:
        """Know the ranks of each pod from now on."""
        ranks: defaultdict[ObjectKey, set[str]] = defaultdict(set)
        for replica in source.aggregate.replicas:
            pod, mark, _ = replica.replica_id.rpartition(_RANK)
            if mark and replica.tenant is not msgspec.UNSET:
                ranks[ObjectKey(replica.tenant, pod)].add(replica.replica_id)
        before, self._ranks = self._ranks, {pod: frozenset(ids) for pod, ids in ranks.items()}
        changed = {
            pod.namespace for pod in ranks.keys() | before.keys() if before.get(pod) != self._ranks.get(pod)
        }
        for namespace in changed:
            for topology in self._observed.in_namespace(PD_TOPOLOGIES, namespace):
                self._look_again(key_of(topology))

    async def stale(self, problem: str) -> None:
        """The ranks that were known stay."""


def is_serving(pod: Document) -> bool:
    """Is the pod ready, and not about to end?"""
    status = section(pod, "status") or {}
    ready = conditions_of(status).get("Ready") or {}
    is_over = status.get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]
    return ready.get("status") == "True" and not is_over


def _serves(pod: Document | None, labels: Mapping[str, Any]) -> bool:
    return pod is not None and has_labels(pod, labels) and is_serving(pod)


def _pools(topology: Document) -> Iterable[Mapping[str, Any]]:
    """The labels of all its pools that select anything."""
    spec = section(topology, "spec") or {}
    for pool in (*(spec.get("prefillPools") or ()), *(spec.get("decodePools") or ())):
        if labels := section(pool, "matchLabels"):
            yield labels
