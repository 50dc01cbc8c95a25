"""The kinds of objects that the controller reads or writes, and where the API has them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import quote

from inferencecache.schemas.resources import GROUP, KINDS, VERSION

Document = dict[str, Any]


class ObjectKind(NamedTuple):
    """A kind; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    name: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As documents spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """Path of one object, of all of a namespace, or of all there are; `part` may be status."""
        root = "/apis/" if self.group else "/api/"
        middle = ("namespaces", namespace) if self.is_namespaced and namespace else ()
        parts = (*middle, self.plural, *filter(None, (name, part)))
        return root + "/".join((self.api_version, *(quote(each, safe="") for each in parts)))


class ObjectKey(NamedTuple):
    """Which object of a kind; the namespace of a cluster-scoped one is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def _ours(name: str) -> ObjectKind:
    kind = KINDS[name]
    return ObjectKind(GROUP, VERSION, kind.plural, name, kind.scope == "Namespaced")


CACHE_BACKENDS: Final = _ours("CacheBackend")
CACHE_INDICES: Final = _ours("CacheIndex")
CACHE_POLICIES: Final = _ours("CachePolicy")
CACHE_TENANTS: Final = _ours("CacheTenant")
PROMPT_TEMPLATES: Final = _ours("PromptTemplate")
PD_TOPOLOGIES: Final = _ours("PDTopology")
PODS: Final = ObjectKind("", "v1", "pods", "Pod")
SERVICES: Final = ObjectKind("", "v1", "services", "Service")
DEPLOYMENTS: Final = ObjectKind("apps", "v1", "deployments", "Deployment")
LEASES: Final = ObjectKind("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICES: Final = ObjectKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
INFERENCE_POOLS: Final = ObjectKind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
EVENTS: Final = ObjectKind("events.k8s.io", "v1", "events", "Event")


def key_of(document: Document) -> ObjectKey:
    """Namespace and name of a document."""
    metadata = document["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"])


def uid_of(document: Document) -> str:
    """The identity of this life of an object."""
    uid: str = document["metadata"].get("uid") or ""
    return uid


def controller_of(document: Document) -> Document | None:
    """The owner reference of the object that controls this one."""
    for reference in document["metadata"].get("ownerReferences") or ():
        if reference.get("controller") is True:
            found: Document = reference
            return found
    return None


def is_controlled_by(document: Document, uid: str) -> bool:
    """Does the object of that uid control this one?"""
    reference = controller_of(document)
    return reference is not None and reference.get("uid") == uid


def controller_reference(owner: Document) -> Document:
    """What makes `owner` the controller of an object: it is collected with its owner [CTL-31]."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
