"""`CacheTenant`: a tenant's identity and how much of the index it may take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.resources.objects import (
    Conditions,
    Count64,
    ObservedGeneration,
    Part,
    Resource,
)


class Quota(Part, frozen=True):
    """Absent values are unbounded."""

    max_index_entries: Annotated[
        Count64 | None,
        Meta(
            description="Most distinct prefix keys of the tenant, 0 or more; 0 admits nothing, absent is "
            "unbounded. Indexers act on it."
        ),
    ] = None


class CacheTenantSpec(Part, frozen=True):
    """What is wanted."""

    tenant_id: Annotated[
        TenantId,
        Meta(
            min_length=1,
            description="Tenant id as traffic carries it, compared exactly; independent of the object's "
            "name and namespace. Routers and indexers act on it.",
        ),
    ] = msgspec.field(name="tenantID")
    quota: Annotated[Quota | None, Meta(description="Bounds of the tenant. Absent: none.")] = None
    isolation_mode: Annotated[
        Literal["Fairness"] | None,
        Meta(
            description="Fairness, the only mode: tenants share engines' memory, quotas bound index entries. "
            "Nobody acts on it yet.",
            extra_json_schema={"default": "Fairness"},
        ),
    ] = None
    crypto: Annotated[
        Annotated[dict[str, Any], Meta(max_length=0)] | None,
        Meta(
            description="Reserved: must be empty, so that a key is refused instead of dropped.",
            extra_json_schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ] = None


class CacheTenantStatus(Part, frozen=True):
    """Written by the controller."""

    observed_generation: ObservedGeneration | None = None
    index_entries: Annotated[
        Count64 | None,
        Meta(description="Distinct prefix keys of the tenant in the index. Absent: not computed; 0: none."),
    ] = None
    conditions: Conditions | None = None


class CacheTenant(Resource, frozen=True, tag="CacheTenant"):
    """Identity and quota of a tenant [CRD-128..137]. Of several with one id, the first by namespace and name
    that sets a quota is in force.
    """

    spec: Annotated[CacheTenantSpec, Meta(description="What is wanted.")]
    status: CacheTenantStatus | None = None
