"""What processes ask of each other outside the log, on core NATS: lossy, repeated while needed."""

from __future__ import annotations

from typing import Literal

import msgspec

from inferencecache.schemas.ids import Incarnation, ModelId, ReplicaId, TenantId


class ResyncRequest(msgspec.Struct, frozen=True):
    """On `ic.resync.<tenant>.<model>.<replica>`: an owner to a producer.

    `resync`: begin anew with all you know. `fenced`: another process has begun as this replica;
    stop publishing if `begun_at`, the log sequence of the current `Begin`, is above your own.
    A producer ignores requests about another incarnation than its own; an empty one means whoever
    reports this replica now.
    """

    kind: Literal["resync", "fenced"]
    incarnation: Incarnation = Incarnation("")
    begun_at: int = 0


class WorkItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Prompt tokens that hints left a replica to compute."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId
    tokens: float


class WorkAssigned(msgspec.Struct, frozen=True):
    """On `ic.work`: what a router's hints assigned since its last message; lossy by design."""

    router: str
    items: tuple[WorkItem, ...] = ()
