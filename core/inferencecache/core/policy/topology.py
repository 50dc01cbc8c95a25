"""From a `PDTopology` to the replicas of its pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.resources import PDTopology, PDTopologySpec, Pool
from inferencecache.schemas.topologies import ResolvedPool, ResolvedTopology

ReplicasOf = Callable[[Pool], Iterable[ReplicaId]]


def stated_replicas(pool: Pool) -> Iterable[ReplicaId]:
    """The ids that the pool itself names: all there is without a controller that resolves labels."""
    return pool.replica_ids or ()


def resolve_topology(topology: PDTopology, replicas_of: ReplicasOf = stated_replicas) -> ResolvedTopology:
    """The topology with the replicas that `replicas_of` finds in each pool."""
    spec = topology.spec or PDTopologySpec()

    def resolved(pools: tuple[Pool, ...] | None) -> tuple[ResolvedPool, ...]:
        return tuple(ResolvedPool(pool.name, tuple(sorted(set(replicas_of(pool))))) for pool in pools or ())

    return ResolvedTopology(
        topology.metadata.namespace,
        topology.metadata.name,
        spec.transport or "Direct",
        resolved(spec.prefill_pools),
        resolved(spec.decode_pools),
    )
