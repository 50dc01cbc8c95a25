"""Objects with every field that the contract names, and ways to change one of them.

The specs and statuses are written out by hand: they are what the structs are compared with.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from tests.support.kube import Document, KubeClient
from tests.support.resources import document

IMAGE: Final = "registry.example.com/cache/lmcache-mp@sha256:" + "0f" * 32
ABSENT: Final = object()
"""What `value_at` finds where nothing is."""

RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "9Gi"},
    "limits": {"memory": 9663676416},
    "claims": [{"name": "gpu", "request": "one"}],
}
TOLERATIONS: Final = [
    {"key": "gpu", "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 60}
]
POD_SECURITY: Final = {
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "runAsNonRoot": True,
    "fsGroup": 2000,
    "fsGroupChangePolicy": "OnRootMismatch",
    "supplementalGroups": [3000],
    "supplementalGroupsPolicy": "Strict",
    "seLinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "s0"},
    "seLinuxChangePolicy": "MountOption",
    "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
    "appArmorProfile": {"type": "Localhost", "localhostProfile": "p"},
    "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
    "windowsOptions": {
        "gmsaCredentialSpecName": "n",
        "gmsaCredentialSpec": "s",
        "runAsUserName": "u",
        "hostProcess": False,
    },
}
_REQUIREMENT: Final = {"key": "disk", "operator": "In", "values": ["fast"]}
_SELECTOR: Final = {"matchLabels": {"app": "a"}, "matchExpressions": [_REQUIREMENT]}
_NODES: Final = {"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}
_PODS: Final = {
    "labelSelector": _SELECTOR,
    "namespaces": ["a"],
    "topologyKey": "kubernetes.io/hostname",
    "namespaceSelector": _SELECTOR,
    "matchLabelKeys": ["a"],
    "mismatchLabelKeys": ["b"],
}
_POD_AFFINITY: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_PODS],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _PODS}],
}
AFFINITY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODES]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _NODES}],
    },
    "podAffinity": _POD_AFFINITY,
    "podAntiAffinity": _POD_AFFINITY,
}
SPREAD: Final = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _SELECTOR,
        "minDomains": 2,
        "matchLabelKeys": ["a"],
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore",
    }
]
SCHEDULING: Final = {
    "tolerations": TOLERATIONS,
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccountName": "cache",
    "securityContext": POD_SECURITY,
    "priorityClassName": "critical",
    "schedulerName": "default-scheduler",
    "runtimeClassName": "nvidia",
    "terminationGracePeriodSeconds": 45,
}
ENV: Final = [
    {"name": "PLAIN", "value": "1"},
    {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
    {"name": "FIELD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
    {
        "name": "RESOURCE",
        "valueFrom": {"resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
    },
    {
        "name": "FILE",
        "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": True}},
    },
]
BACKEND: Final[Document] = {
    "runtime": "VLLM",
    "type": "LMCache",
    "lmCache": {
        "topology": "PodLocal",
        "chunkSizeTokens": 512,
        "podLocal": {
            "server": {
                "image": IMAGE,
                "port": 6100,
                "l1Capacity": "8Gi",
                "maxWorkers": 2,
                "resources": RESOURCES,
            }
        },
        "nodeLocal": {
            "idleRetentionSeconds": 900,
            "server": {
                "image": IMAGE,
                "port": 17001,
                "httpPort": 17002,
                "l1Capacity": "64Gi",
                "maxGPUWorkers": 8,
                "maxCPUWorkers": 4,
                "resources": RESOURCES,
            },
            "scheduling": SCHEDULING,
        },
    },
    "hiCache": {
        "sizeGB": 96,
        "ratio": "2.5",
        "writePolicy": "write_through_selective",
        "ioBackend": "kernel",
        "memoryLayout": "page_first",
    },
    "remoteStorage": {
        "provider": "Redis",
        "ownership": "Managed",
        "endpoint": "kv-redis.platform.svc:6379",
        "workload": {
            "nodeSelector": {"disk": "fast"},
            "affinity": AFFINITY,
            "topologySpreadConstraints": SPREAD,
            **SCHEDULING,
        },
        "redis": {
            "image": "registry.example.com/redis:7",
            "resources": RESOURCES,
            "authentication": {
                "password": {"name": "docs-redis", "key": "pass", "optional": False},
                "username": {"name": "docs-redis", "key": "user"},
            },
            "tls": {"caCertificate": {"name": "ca", "key": "ca.crt"}, "serverName": "redis"},
            "database": 0,
        },
    },
    "observation": {"modelID": "acme/docs-7b", "firstEventTimeout": "10m"},
    "integration": {
        "mode": "Offload",
        "role": "ReadWrite",
        "failOpen": False,
        "engineOverrides": {
            "args": ["--max-num-seqs", "64"],
            "suppressArgs": ["--enable-prefix-caching"],
            "env": ENV,
            "suppressEnv": ["LMCACHE_LOG_LEVEL"],
        },
    },
    "engineSelector": {"matchLabels": {"inferencecache.io/cache-domain": "docs"}},
    "allowCrossNamespace": True,
}
"""Every field of the spec. The schema takes what admission does not: both topologies beside each other."""

CONDITION: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "AllGood",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
BACKEND_STATUS: Final[Document] = {
    "connector": {
        "mode": "Multiprocess",
        "topology": "PodLocal",
        "matchedEnginePods": 2,
        "readyEnginePods": 2,
        "desiredServers": 2,
        "readyServers": 1,
        "coveredEnginePods": 1,
        "uncoveredEnginePods": 1,
        "enginePodCoverage": [
            {
                "name": "engine-0",
                "nodeName": "node-a",
                "ready": True,
                "covered": False,
                "reason": "MPServersNotReady",
            }
        ],
    },
    "remoteStorage": {"provider": "Redis", "endpoint": "docs-redis.serving.svc:6379", "ready": "True"},
    "matchedEnginePods": 2,
    "engineSelectorMessage": "no pod has inferencecache.io/cache-domain=docs",
    "failOpen": True,
    "observedGeneration": 1,
    "firstKVEventObservedAt": "2026-01-02T03:04:05Z",
    "firstAvailableAt": "2026-01-02T03:04:05Z",
    "indexParticipation": {
        "prefixCount": 12,
        "lastEventAt": "2026-01-02T03:04:05Z",
        "hitRate": "0.5",
        "t2HitRate": "0",
    },
    "conditions": [CONDITION],
}
POLICY: Final[Document] = {
    "eviction": "LFU",
    "evictionTTL": "45m",
    "minimumPrefixTokens": 48,
    "minimumMatchedTokens": 32,
    "routingFloorScore": "2.5",
    "lookupTimeoutMs": 15,
    "strategy": {
        "enableChainMatching": True,
        "requireChain": True,
        "enableTenantHot": False,
        "loadBalancing": "Disabled",
        "loadWeight": "0.25",
    },
    "affinityRouting": "Disabled",
}
TENANT: Final[Document] = {
    "tenantID": "team-a",
    "quota": {"maxIndexEntries": 250000},
    "isolationMode": "Fairness",
    "crypto": {},
}
INDEX_STATUS: Final[Document] = {
    "replicas": [
        {
            "id": "engine-0",
            "tenant": "team-a",
            "cacheMemoryBytes": 1024,
            "hitRate": "0.5",
            "pressure": "0.25",
            "lastUpdate": "2026-01-02T03:04:05Z",
        }
    ],
    "tenants": [{"id": "", "indexEntries": 3, "hitRate": "0.5", "memoryUsed": 0}],
    "prefixes": {"summary": {"total": 3, "hot": 0}},
    "observedServer": "jetstream://ic/1",
    "lastUpdated": "2026-01-02T03:04:05Z",
    "conditions": [CONDITION],
}
TEMPLATE: Final[Document] = {
    "body": "You answer for {{brand}}.\n",
    "slots": [{"name": "brand", "type": "Stable", "required": True, "description": "who asks"}],
}
TOPOLOGY: Final[Document] = {
    "prefillPools": [
        {"name": "pre-0", "replicas": 2, "acceleratorType": "big", "matchLabels": {"phase": "prefill"}}
    ],
    "decodePools": [
        {"name": "dec-0", "replicas": 6, "acceleratorType": "big", "matchLabels": {"phase": "decode"}}
    ],
    "acceleratorTypes": [
        {"name": "big", "vendor": "nvidia", "model": "H200", "matchLabels": {"gpu": "h200"}}
    ],
    "transport": "NIXL",
}
_ONLY_CONDITIONS: Final[Document] = {"observedGeneration": 1, "conditions": [CONDITION]}

SPECS: Final[dict[str, Document]] = {
    "CacheBackend": BACKEND,
    "CacheIndex": {},
    "CachePolicy": POLICY,
    "CacheTenant": TENANT,
    "PromptTemplate": TEMPLATE,
    "PDTopology": TOPOLOGY,
}
"""A spec with every field by kind."""
STATUSES: Final[dict[str, Document]] = {
    "CacheBackend": BACKEND_STATUS,
    "CacheIndex": INDEX_STATUS,
    "CachePolicy": _ONLY_CONDITIONS,
    "CacheTenant": _ONLY_CONDITIONS | {"indexEntries": 3},
    "PromptTemplate": _ONLY_CONDITIONS | {"templateRevision": "abc"},
    "PDTopology": _ONLY_CONDITIONS,
}
"""A status with every field by kind."""

_STEP: Final = re.compile(r"[^.\[\]]+")


def an_object(kind: str, namespace: str, spec: Document | None = None, name: str = "one") -> Document:
    """A document of the kind; a kind without a namespace gets none."""
    made = document(kind, f"{namespace}/{name}", spec)
    if kind == "CacheIndex":
        del made["metadata"]["namespace"]
    return copy.deepcopy(made)


def with_value(document: Document, path: str, value: object) -> Document:
    """The document with another value at a path such as `spec.slots[0].name`, or without it if `ABSENT`."""
    changed = copy.deepcopy(document)
    *parents, last = _steps(path)
    inner: Any = changed
    for step in parents:
        inner = inner[step]
    if value is ABSENT:
        del inner[last]
    else:
        inner[last] = value
    return changed


def value_at(document: Document, path: str) -> Any:
    """What is there, or `ABSENT`."""
    inner: Any = document
    for step in _steps(path):
        if isinstance(step, str) and step not in inner:
            return ABSENT
        inner = inner[step]
    return inner


def _steps(path: str) -> list[str | int]:
    return [int(step) if step.isdecimal() else step for step in _STEP.findall(path)]


async def stored(kube: KubeClient, document: Document, *, strict: bool = True) -> Document:
    """The object as the server keeps it."""
    answer = await kube.create(document, strict=strict)
    assert answer.status == 201, answer.body
    return answer.body


async def refused(kube: KubeClient, document: Document) -> list[tuple[str, str, str]]:
    """Reason, path and message of what the server has against the document."""
    answer = await kube.create(document)
    assert answer.status == 422, answer.body
    assert answer.body["reason"] == "Invalid"
    return answer.causes
