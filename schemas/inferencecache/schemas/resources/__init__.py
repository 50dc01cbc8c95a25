"""The custom resources of `inferencecache.io/v1alpha1`.

A resource is read by `read_resource`, filled by `defaulted` as the API server would, and judged by
`violations`. CRD manifests and reference tables are generated from the structs, so each field says
what it means, its default, its limits and who acts on it.
"""

from __future__ import annotations

from inferencecache.schemas.resources.cache_backend import CacheBackend, CacheBackendSpec, CacheBackendStatus
from inferencecache.schemas.resources.cache_index import CLUSTER_INDEX, CacheIndex, CacheIndexStatus
from inferencecache.schemas.resources.cache_policy import (
    CachePolicy,
    CachePolicySpec,
    CachePolicyStatus,
    Strategy,
)
from inferencecache.schemas.resources.cache_tenant import (
    CacheTenant,
    CacheTenantSpec,
    CacheTenantStatus,
    Quota,
)
from inferencecache.schemas.resources.durations import parse_duration
from inferencecache.schemas.resources.fields import defaulted
from inferencecache.schemas.resources.kinds import KINDS, AnyResource, Column, Kind, find_kind
from inferencecache.schemas.resources.objects import (
    API_VERSION,
    GROUP,
    VERSION,
    Condition,
    ObjectMeta,
    ResourceRef,
)
from inferencecache.schemas.resources.pd_topology import (
    AcceleratorType,
    PDTopology,
    PDTopologySpec,
    PDTopologyStatus,
    Pool,
)
from inferencecache.schemas.resources.prompt_template import (
    PromptTemplate,
    PromptTemplateSpec,
    PromptTemplateStatus,
    Slot,
)
from inferencecache.schemas.resources.reading import InvalidResourceError, document_of, read_resource
from inferencecache.schemas.resources.rules import Violation, violations

__all__ = [
    "API_VERSION",
    "CLUSTER_INDEX",
    "GROUP",
    "KINDS",
    "VERSION",
    "AcceleratorType",
    "AnyResource",
    "CacheBackend",
    "CacheBackendSpec",
    "CacheBackendStatus",
    "CacheIndex",
    "CacheIndexStatus",
    "CachePolicy",
    "CachePolicySpec",
    "CachePolicyStatus",
    "CacheTenant",
    "CacheTenantSpec",
    "CacheTenantStatus",
    "Column",
    "Condition",
    "InvalidResourceError",
    "Kind",
    "ObjectMeta",
    "PDTopology",
    "PDTopologySpec",
    "PDTopologyStatus",
    "Pool",
    "PromptTemplate",
    "PromptTemplateSpec",
    "PromptTemplateStatus",
    "Quota",
    "ResourceRef",
    "Slot",
    "Strategy",
    "Violation",
    "defaulted",
    "document_of",
    "find_kind",
    "parse_duration",
    "read_resource",
    "violations",
]
