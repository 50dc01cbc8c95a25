"""What processes ask of each other outside the log, on core NATS: lossy, repeated while needed."""

from __future__ import annotations

from typing import Literal

import msgspec

from inferencecache.schemas.ids import HashScheme, Incarnation, ModelId, ReplicaId, TenantId


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
    """Prompt tokens that hints left a replica to compute; below 0 it is spared more of an earlier message."""

    tenant: TenantId
    model: ModelId
    replica: ReplicaId
    tokens: float


class WorkAssigned(msgspec.Struct, frozen=True):
    """On `ic.work`: what a router's hints assigned since its last message; lossy by design."""

    router: str
    items: tuple[WorkItem, ...] = ()


class ProbeRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """On `ic.probe`: take a synthetic block through the log into a router's view and look it up [CTL-121].

    An empty message only asks who answers. `backend` is `<namespace>/<name>`.
    """

    backend: str
    model: ModelId
    hash_scheme: HashScheme
    backend_type: str = ""


class ProbeFailure(msgspec.Struct, frozen=True, rename="camel"):
    """Why a stage failed; stage `request` stands for a request that could not be read."""

    stage: str
    message: str


class ProbeResult(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of one router, `router` its id. Stages are `ok`, `failed` or `skipped`, and empty when
    nothing was probed [CTL-122].
    """

    router: str = ""
    backend: str = ""
    ingest: str = ""
    routing: str = ""
    t2: str = ""
    errors: tuple[ProbeFailure, ...] = ()
