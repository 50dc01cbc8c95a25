"""What a CacheBackend means where it says nothing: effective values over the document as stored.

Everybody who acts on a backend reads it here, so that an object that bypassed admission behaves like
an admitted one [CRD-87..100]. A value of the wrong type reads as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inferencecache.schemas.resources import parse_duration
from inferencecache.schemas.resources.quantities import GIBI, parse_quantity

DOMAIN_LABEL: Final = "inferencecache.io/cache-domain"
KERNEL_CHECK_ANNOTATION: Final = "inferencecache.io/lmcache-kernel-check"
DEFAULT_CHUNK_TOKENS: Final = 256
DEFAULT_FIRST_EVENT_TIMEOUT: Final = "5m"
DEFAULT_REDIS_IMAGE: Final = "docker.io/library/redis:7.4-alpine"
DEFAULT_REDIS_RESOURCES: Final = {"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}}
_MEMORY_WITHOUT_LIMIT: Final = 8 * GIBI

LMCACHE: Final = "LMCache"
HICACHE: Final = "SGLangHiCache"
OFFLOAD: Final = "Offload"
EVENTS_ONLY: Final = "EventsOnly"
POD_LOCAL: Final = "PodLocal"
NODE_LOCAL: Final = "NodeLocal"
TOPOLOGIES: Final = (POD_LOCAL, NODE_LOCAL)
READ_WRITE: Final = "ReadWrite"
MANAGED: Final = "Managed"
EXTERNAL: Final = "External"


def section(parent: object, *keys: str) -> dict[str, Any] | None:
    """The object below these keys; None where one is missing, null or no object."""
    for key in keys:
        parent = parent.get(key) if isinstance(parent, dict) else None
    return parent if isinstance(parent, dict) else None


def text(parent: Mapping[str, Any] | None, key: str) -> str:
    """The text under a key, empty when there is none."""
    value = parent.get(key) if parent is not None else None
    return value if isinstance(value, str) else ""


class Backend:
    """A CacheBackend document with the values that count. The document itself is never changed."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        metadata = section(document, "metadata")
        self.name = text(metadata, "name")
        self.namespace = text(metadata, "namespace")
        self.uid = text(metadata, "uid")
        generation = (metadata or {}).get("generation")
        self.generation = generation if isinstance(generation, int) else 0
        self.annotations = section(metadata, "annotations") or {}
        self.spec = section(document, "spec") or {}
        self.status = section(document, "status") or {}
        self.lm_cache = section(self.spec, "lmCache")
        self.hi_cache = section(self.spec, "hiCache")
        self.remote_storage = section(self.spec, "remoteStorage")
        self.redis = section(self.remote_storage, "redis")
        self.integration = section(self.spec, "integration")
        self.overrides = section(self.integration, "engineOverrides")
        self.observation = section(self.spec, "observation")

    @property
    def runtime_id(self) -> str:
        """The runtime as messages and tags spell it: vllm, sglang, or empty [CRD-91]."""
        return text(self.spec, "runtime").lower()

    @property
    def type(self) -> str:
        """[CRD-87]."""
        return text(self.spec, "type") or LMCACHE

    @property
    def mode(self) -> str:
        """[CRD-88]."""
        return text(self.integration, "mode") or OFFLOAD

    @property
    def role(self) -> str:
        """[CRD-89]."""
        return text(self.integration, "role") or READ_WRITE

    @property
    def fail_open(self) -> bool:
        """[CRD-90]."""
        return self.integration is None or self.integration.get("failOpen") is not False

    @property
    def topology(self) -> str:
        """Where the LMCache server runs; empty without one."""
        return text(self.lm_cache, "topology")

    @property
    def is_typed_mp(self) -> bool:
        """Whether LMCache servers of ours stand beside the engines."""
        return self.type == LMCACHE and self.topology in TOPOLOGIES

    @property
    def server(self) -> dict[str, Any] | None:
        """The server block of the topology."""
        match self.topology:
            case "PodLocal":
                return section(self.lm_cache, "podLocal", "server")
            case "NodeLocal":
                return section(self.lm_cache, "nodeLocal", "server")
        return None

    @property
    def chunk_tokens(self) -> int:
        """[CRD-93]."""
        value = (self.lm_cache or {}).get("chunkSizeTokens")
        return value if isinstance(value, int) else DEFAULT_CHUNK_TOKENS

    @property
    def model_id(self) -> str:
        """Empty when none is observed [CRD-95]."""
        return text(self.observation, "modelID")

    @property
    def first_event_timeout_ns(self) -> int:
        """Nanoseconds, more than 0 [CRD-94]."""
        try:
            written = parse_duration(text(self.observation, "firstEventTimeout"))
        except ValueError:
            written = 0
        return written if written > 0 else parse_duration(DEFAULT_FIRST_EVENT_TIMEOUT)

    @property
    def allow_cross_namespace(self) -> bool:
        """[CRD-99]."""
        return self.spec.get("allowCrossNamespace") is True

    @property
    def redis_image(self) -> str:
        """[CRD-96]."""
        return text(self.redis, "image") or DEFAULT_REDIS_IMAGE

    @property
    def redis_resources(self) -> dict[str, Any]:
        """What the container gets; an empty object written is nothing, and stays so [CRD-97]."""
        written = section(self.redis, "resources")
        return DEFAULT_REDIS_RESOURCES if written is None else written

    @property
    def redis_keyspace_bytes(self) -> int:
        """Four fifths of the memory limit; the rest is for what is no block [CRD-98]."""
        limit = (section(self.redis_resources, "limits") or {}).get("memory")
        try:
            written = int(parse_quantity(limit)) if isinstance(limit, str | int) else 0
        except ValueError:
            written = 0
        memory = written if written > 0 else _MEMORY_WITHOUT_LIMIT
        return memory - memory // 5

    @property
    def match_labels(self) -> dict[str, Any]:
        """Empty selects no pod, never every pod [CRD-100]."""
        return section(self.spec, "engineSelector", "matchLabels") or {}

    @property
    def domain(self) -> str:
        """The cache domain that the selector names, empty without one."""
        return text(self.match_labels, DOMAIN_LABEL)
