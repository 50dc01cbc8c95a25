"""Prefill/decode topologies as routers hold them: `topology.<namespace>.<name>` in `IC_POLICY`."""

from __future__ import annotations

import msgspec

from inferencecache.schemas.ids import ReplicaId


class ResolvedPool(msgspec.Struct, frozen=True, rename="camel"):
    """A pool with the replicas that are in it now, ascending."""

    name: str
    replicas: tuple[ReplicaId, ...] = ()


class ResolvedTopology(msgspec.Struct, frozen=True, rename="camel"):
    """`transport` is what `transport_hint` says: `Mooncake`, `NIXL` or `Direct`."""

    namespace: str
    name: str
    transport: str = "Direct"
    prefill_pools: tuple[ResolvedPool, ...] = ()
    decode_pools: tuple[ResolvedPool, ...] = ()
