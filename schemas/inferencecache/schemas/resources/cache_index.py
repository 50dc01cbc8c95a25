"""`CacheIndex`: what the index holds, for people who look."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from inferencecache.schemas.resources.objects import Conditions, Count64, Part, Resource, Time, listed_by

CLUSTER_INDEX: Final = "cluster-default"
"""Name of the one object that means anything [CRD-139]."""


class CacheIndexSpec(Part, frozen=True):
    """Nothing is wanted of it."""


class IndexReplica(Part, frozen=True):
    """A replica that has reported statistics."""

    id: Annotated[str, Meta(description="Name of the engine pod.")]
    tenant: Annotated[
        str | None,
        Meta(description="Tenant of the report; of two reports under one name, that of the later tenant."),
    ] = None
    cache_memory_bytes: Annotated[
        Count64 | None, Meta(description="Memory of the engine's cache in bytes, of all tenants.")
    ] = None
    hit_rate: Annotated[
        str | None, Meta(description="Share of tokens found in the cache, 0 to 1. Absent: not reported.")
    ] = None
    pressure: Annotated[str | None, Meta(description="How full the cache is, 0 to 1.")] = None
    last_update: Annotated[Time | None, Meta(description="When this row last changed.")] = None


class IndexTenant(Part, frozen=True):
    """What the index holds of one tenant."""

    id: Annotated[str, Meta(description="Tenant id; empty for traffic without a tenant.")]
    index_entries: Annotated[Count64 | None, Meta(description="Distinct prefix keys.")] = None
    hit_rate: Annotated[
        str | None,
        Meta(description="Mean over the tenant's replicas, 0 to 1. Absent: none has reported."),
    ] = None
    memory_used: Annotated[
        Count64 | None, Meta(description="Always 0: engines' memory belongs to no tenant. Deprecated.")
    ] = None


class PrefixSummary(Part, frozen=True):
    """Counts over all tenants."""

    total: Annotated[Count64, Meta(description="Distinct prefix keys.")]
    hot: Annotated[Count64, Meta(description="Always 0: hotness is not measured.")]


class IndexPrefixes(Part, frozen=True):
    """What the index holds in all."""

    summary: Annotated[PrefixSummary | None, Meta(description="Counts over all tenants.")] = None


class CacheIndexStatus(Part, frozen=True):
    """Written by the controller, from the indexers' aggregate."""

    replicas: Annotated[
        tuple[IndexReplica, ...] | None,
        Meta(description="Replicas that have reported statistics, by id.", extra_json_schema=listed_by("id")),
    ] = None
    tenants: Annotated[
        tuple[IndexTenant, ...] | None,
        Meta(description="Tenants that the index knows, by id.", extra_json_schema=listed_by("id")),
    ] = None
    prefixes: Annotated[IndexPrefixes | None, Meta(description="What the index holds in all.")] = None
    observed_server: Annotated[
        str | None,
        Meta(description="The event log that this was read from, jetstream://<prefix>/<generation>."),
    ] = None
    last_updated: Annotated[Time | None, Meta(description="When the data last changed.")] = None
    conditions: Conditions | None = None


class CacheIndex(Resource, frozen=True, tag="CacheIndex"):
    """The index as a whole, for observation only; the controller makes the one named cluster-default
    [CRD-138..150]. Nothing is routed by it.
    """

    spec: Annotated[CacheIndexSpec | None, Meta(description="Empty; what is written here is dropped.")] = None
    status: CacheIndexStatus | None = None
