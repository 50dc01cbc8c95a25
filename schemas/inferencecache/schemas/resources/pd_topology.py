"""`PDTopology`: pools of replicas for engines that separate prefill from decode."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.resources.objects import (
    LOCAL_ONLY,
    Conditions,
    Count32,
    Labels,
    Name,
    ObservedGeneration,
    Part,
    Resource,
    listed_by,
)

Transport = Literal["Mooncake", "NIXL", "Direct"]


class Pool(Part, frozen=True):
    """Replicas of one phase."""

    name: Annotated[Name, Meta(description="Name of the pool, unique in its list.")]
    match_labels: Annotated[
        Labels | None,
        Meta(
            description="Labels of the pool's engine pods in the object's namespace. The controller resolves "
            "them to replica ids; absent or empty selects none."
        ),
    ] = None
    replica_ids: Annotated[
        tuple[ReplicaId, ...] | None,
        Meta(
            description="Ids of the pool's replicas, where no controller resolves matchLabels.",
            extra={LOCAL_ONLY: True},
        ),
    ] = msgspec.field(name="replicaIDs", default=None)
    replicas: Annotated[
        Count32 | None,
        Meta(
            description="How many replicas the pool is meant to have, 0 or more. Absent: not stated; 0: "
            "explicitly none. Nobody acts on it."
        ),
    ] = None
    accelerator_type: Annotated[
        str | None,
        Meta(description="Name of an item of spec.acceleratorTypes; not checked. Nobody acts on it."),
    ] = None


class AcceleratorType(Part, frozen=True):
    """A kind of accelerator that pools refer to."""

    name: Annotated[Name, Meta(description="Name that pools refer to, unique in the list.")]
    vendor: Annotated[str | None, Meta(description="Who makes it.")] = None
    model: Annotated[str | None, Meta(description="Which one it is.")] = None
    match_labels: Annotated[Labels | None, Meta(description="Labels of the nodes that have it.")] = None


class PDTopologySpec(Part, frozen=True):
    """Every list may be absent."""

    prefill_pools: Annotated[
        tuple[Pool, ...] | None,
        Meta(
            description="Pools that compute prompts. LookupPDRoute picks the replica with the longest match "
            "among them. Routers act on it.",
            extra_json_schema=listed_by("name"),
        ),
    ] = None
    decode_pools: Annotated[
        tuple[Pool, ...] | None,
        Meta(
            description="Pools that generate. LookupPDRoute picks the least loaded replica among them. "
            "Routers act on it.",
            extra_json_schema=listed_by("name"),
        ),
    ] = None
    accelerator_types: Annotated[
        tuple[AcceleratorType, ...] | None,
        Meta(description="Kinds of accelerators, for people.", extra_json_schema=listed_by("name")),
    ] = None
    transport: Annotated[
        Transport | None,
        Meta(
            description="How KV blocks travel from prefill to decode: Mooncake, NIXL or Direct. Routers "
            "hand it on as transport_hint.",
            extra_json_schema={"default": "Direct"},
        ),
    ] = None


class PDTopologyStatus(Part, frozen=True):
    """Written by the controller."""

    observed_generation: ObservedGeneration | None = None
    conditions: Conditions | None = None


class PDTopology(Resource, frozen=True, tag="PDTopology"):
    """Prefill and decode pools, referred to as namespace/name [CRD-161..169]."""

    spec: Annotated[PDTopologySpec | None, Meta(description="What is wanted.")] = None
    status: PDTopologyStatus | None = None
