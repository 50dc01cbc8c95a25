"""Facts of a healthy installation for the doctor's checks; a test replaces what its sentence is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from inferencecache.cli.doctor.facts import (
    AggregateFacts,
    BusFacts,
    Counted,
    EngineFacts,
    EnginePage,
    EngineSpec,
    KubeFacts,
    LogFacts,
    PolicyFacts,
    ProbeAnswer,
    RouterFacts,
    SidecarPage,
    StreamFacts,
)
from inferencecache.cli.doctor.findings import Finding
from inferencecache.cli.owners import Owner
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.members import RouterMember, ViewedPartition
from tests.support.backends import DOMAIN, REDIS, change, pod_local
from tests.support.resources import document

Document = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NATS = "127.0.0.1:4222"
READY = {"type": "Ready", "status": "True", "reason": "KVEventsObserved", "message": ""}


def codes(findings: list[Finding] | tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def ago(**delta: float) -> str:
    return (NOW - timedelta(**delta)).strftime("%Y-%m-%dT%H:%M:%SZ")


def backend(**status: Any) -> Document:
    """A host-only backend that an engine's events were seen for."""
    healthy = {
        "conditions": [READY],
        "matchedEnginePods": 1,
        "firstKVEventObservedAt": ago(hours=1),
        "indexParticipation": {"prefixCount": 7, "lastEventAt": ago(seconds=20)},
    }
    return change(pod_local(), "status", healthy | status)


def external(endpoint: str = "redis.example:6379") -> Document:
    """A backend whose store is somebody else's."""
    made = change(pod_local(), "spec.remoteStorage", REDIS | {"ownership": "External"})
    return change(made, "status", {"conditions": [READY], "remoteStorage": {"endpoint": endpoint}})


def pod(name: str = "engine-0", *, uid: str = "p-1", injected: bool = True) -> Document:
    """A pod that the backend above selects."""
    marks = {"inferencecache.io/injected-by": "team-a/cache", "inferencecache.io/injected-by-uid": "u-1"}
    metadata: Document = {"namespace": "team-a", "name": name, "uid": uid, "labels": {DOMAIN: "engine"}}
    metadata |= {"annotations": marks} if injected else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


def event(reason: str, about: Document, **fields: Any) -> Document:
    """An Event of the newer API."""
    regarding = {"kind": "Pod", **{key: about["metadata"][key] for key in ("namespace", "name", "uid")}}
    return {"reason": reason, "regarding": regarding, "eventTime": ago(minutes=1)} | fields


def kube(**changed: Any) -> KubeFacts:
    """One healthy backend with its pod and policy; nothing is dialled."""
    healthy = KubeFacts(
        NOW,
        backends=(backend(),),
        pods={"team-a": (pod(),)},
        events=(),
        tenants=(),
        policies=(document("CachePolicy", "team-a/lookup", {}),),
    )
    return healthy._replace(**changed)


def router(id_: str = "r1", **changed: Any) -> RouterMember:
    """A router that answers by generation 1, whose only partition it has read to the end."""
    view = ViewedPartition(LogEpoch("e"), 5, 1, "00000000000000ab", 0.1, complete=True)
    fields: dict[str, Any] = {"partitions": {"1.0": view}, "generation": 1, "policy_revision": 3}
    return RouterMember(id_, **(fields | changed))


def bus(**changed: Any) -> BusFacts:
    """A log of one partition with an owner and two routers."""
    healthy = BusFacts(
        NATS,
        AggregateFacts({"1.0": Counted(2.0)}),
        PolicyFacts(None),
        ProbeAnswer("r1"),
        LogFacts((StreamFacts("IC_EVENTS_1_0", True, 86400, 1),), (Owner("1.0", "ix"),)),
        RouterFacts((router("r1"), router("r2")), compared=1),
    )
    return healthy._replace(**changed)


def engine(resource: str = "pod/team-a/engine-0", **changed: Any) -> EngineFacts:
    """An engine at work whose events arrive."""
    page = EnginePage(block_size=16, hash_algorithm="sha256", prefix_caching=True, served=10)
    sidecar = SidecarPage(block_size=16, messages=5, stored=5, tracked_blocks=20)
    return EngineFacts(resource, EngineSpec(runtime="vllm"), page, sidecar)._replace(**changed)
