"""The kinds of resources: every name that people write, and what a listing shows of them [CRD-03]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from inferencecache.schemas.resources.cache_backend import CacheBackend
from inferencecache.schemas.resources.cache_index import CacheIndex
from inferencecache.schemas.resources.cache_policy import CachePolicy
from inferencecache.schemas.resources.cache_tenant import CacheTenant
from inferencecache.schemas.resources.pd_topology import PDTopology
from inferencecache.schemas.resources.prompt_template import PromptTemplate

AnyResource = CacheBackend | CacheIndex | CachePolicy | CacheTenant | PromptTemplate | PDTopology


class Column(NamedTuple):
    """What a listing shows beside the name; `path` is a JSONPath from the object's root."""

    name: str
    type: Literal["string", "integer", "date"]
    path: str


class Kind(NamedTuple):
    """A kind with its struct; the singular name is the kind in lower case. The age follows `columns`.

    `only_in_cluster`: without Kubernetes the kind means nothing.
    """

    struct: type[AnyResource]
    plural: str
    short: str
    columns: tuple[Column, ...]
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    only_in_cluster: bool = False

    @property
    def name(self) -> str:
        """The kind as documents spell it."""
        return self.struct.__name__


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(
            CacheBackend,
            "cachebackends",
            "cb",
            (
                Column("Type", "string", ".spec.type"),
                Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
                Column("Matched", "integer", ".status.matchedEnginePods"),
                Column("Remote", "string", ".status.remoteStorage.endpoint"),
                Column("Prefixes", "integer", ".status.indexParticipation.prefixCount"),
                Column("LastEvent", "date", ".status.indexParticipation.lastEventAt"),
            ),
            only_in_cluster=True,
        ),
        Kind(
            CacheIndex,
            "cacheindices",
            "ci",
            (
                Column("Prefixes", "integer", ".status.prefixes.summary.total"),
                Column("Changed", "date", ".status.lastUpdated"),
            ),
            scope="Cluster",
            only_in_cluster=True,
        ),
        Kind(CachePolicy, "cachepolicies", "cpol", (Column("Eviction", "string", ".spec.eviction"),)),
        Kind(
            CacheTenant,
            "cachetenants",
            "ct",
            (
                Column("Tenant", "string", ".spec.tenantID"),
                Column("Entries", "integer", ".status.indexEntries"),
                Column("Quota", "integer", ".spec.quota.maxIndexEntries"),
                Column("Isolation", "string", ".spec.isolationMode"),
            ),
        ),
        Kind(
            PromptTemplate,
            "prompttemplates",
            "pt",
            (Column("Revision", "string", ".status.templateRevision"),),
        ),
        Kind(
            PDTopology,
            "pdtopologies",
            "pdt",
            (
                Column("Prefill", "string", ".spec.prefillPools[*].name"),
                Column("Decode", "string", ".spec.decodePools[*].name"),
            ),
        ),
    )
}


def find_kind(text: str) -> Kind | None:
    """The kind by its name, plural or short name, in any case."""
    word = text.lower()
    return next(
        (kind for kind in KINDS.values() if word in (kind.name.lower(), kind.plural, kind.short)), None
    )
