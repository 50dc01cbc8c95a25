"""CacheBackends as the worked cases of the contract start from them, as documents.

Each call gives a new document; `change` sets what a case is about.
"""

from __future__ import annotations

import copy
from typing import Any

from inferencecache.schemas.resources import API_VERSION

Document = dict[str, Any]

DOMAIN = "inferencecache.io/cache-domain"
IMAGE = f"registry.example.com/lmcache@sha256:{'a' * 64}"
REDIS = {"provider": "Redis", "ownership": "Managed"}
_RESOURCES = {"requests": {"cpu": "1", "memory": "5Gi"}, "limits": {"memory": "5Gi"}}


def backend(
    spec: Document, *, name: str = "cache", namespace: str = "team-a", domain: str = "engine"
) -> Document:
    """A CacheBackend with this spec and the uid and generation that the cases name; no selector without
    a domain.
    """
    metadata = {"name": name, "namespace": namespace, "uid": "u-1", "generation": 3}
    selector = {"engineSelector": {"matchLabels": {DOMAIN: domain}}} if domain else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "CacheBackend",
        "metadata": metadata,
        "spec": {"type": "LMCache"} | selector | spec,
    }


def pod_local(runtime: str = "VLLM", **identity: str) -> Document:
    """B-pl: a server in each engine pod, nothing remote."""
    server = {"image": IMAGE, "port": 6500, "l1Capacity": "4Gi", "maxWorkers": 4}
    server["resources"] = copy.deepcopy(_RESOURCES)
    lm_cache = {"topology": "PodLocal", "podLocal": {"server": server}}
    return backend({"runtime": runtime, "lmCache": lm_cache}, **identity)


def node_local(runtime: str = "VLLM", **identity: str) -> Document:
    """B-nl: a server on each node."""
    server = {"image": IMAGE, "port": 6555, "httpPort": 18080, "l1Capacity": "4Gi"}
    server |= {"maxGPUWorkers": 4, "maxCPUWorkers": 4, "resources": copy.deepcopy(_RESOURCES)}
    lm_cache = {"topology": "NodeLocal", "nodeLocal": {"server": server}}
    return backend({"runtime": runtime, "lmCache": lm_cache}, **identity)


def hi_cache(**identity: str) -> Document:
    """B-hc: SGLang's own host cache, twice the size of the device's."""
    return backend({"runtime": "SGLang", "type": "SGLangHiCache", "hiCache": {"ratio": "2"}}, **identity)


def events_only(runtime: str = "VLLM", model: str = "m", **identity: str) -> Document:
    """B-eo: engines are observed and nothing else."""
    spec = {"runtime": runtime, "integration": {"mode": "EventsOnly"}, "observation": {"modelID": model}}
    return backend(spec, **identity)


def change(document: Document, path: str, value: Any) -> Document:
    """A copy with a value set at a dotted path, whose parents are made; None removes the key."""
    changed = copy.deepcopy(document)
    *parents, last = path.split(".")
    part = changed
    for key in parents:
        part = part.setdefault(key, {})
    if value is None:
        part.pop(last, None)
    else:
        part[last] = value
    return changed
