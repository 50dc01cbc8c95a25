"""Passes over any backend in any cluster: they settle, and publish what the contract's catalogue has."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.controller.backend.paths import PUBLISHED, Path, choose_path
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.api import KubeError
from inferencecache.core.kube.backends import EVENTS_ONLY, Backend
from inferencecache.core.kube.kinds import DEPLOYMENTS, SERVICES, Document
from inferencecache.schemas.requests import ProbeFailure, ProbeResult
from inferencecache.schemas.resources.cache_backend import CacheBackendStatus
from inferencecache.schemas.resources.fields import unknown_fields
from tests.support.backend_passes import (
    ALL_OK,
    MARK,
    NO_ANSWER,
    Passes,
    checked,
    engine,
    node_server,
    of_case,
    owner,
    stamps,
)
from tests.support.backends import change, events_only, hi_cache, node_local, pod_local

CONNECTOR = {
    "True/ConnectorReady",
    "False/NoEnginePods",
    "False/MPServersNotReady",
    "False/NodeLocalServerPoolPending",
    "False/NodeLocalHostPortConflict",
    "False/NodeLocalWorkerCapacityExceeded",
    "False/AmbiguousNodeLocalServers",
    "Unknown/ConnectorInjectionUnverified",
}
PROBE_FAILURES = {f"False/Probe{why}" for why in ("IngestFailed", "RoutingFailed", "T2Failed", "Error")}
STORE = {"False/RemoteStorageUnavailable", "Unknown/RemoteStoragePending"}
EXTERNAL = {"False/ExternalEndpointMissing", "False/ExternalEndpointInvalid"}
READY = {
    "True/BackendReady",
    "True/KVEventsObserved",
    "True/ConnectorReady",
    "True/ExternalEndpointAccepted",
    "True/HostOnlyActive",
    "True/EventsOnlyActive",
    "False/ScaledToZero",
    "False/RolloutInProgress",
    "False/ReplicasUnavailable",
    "False/AwaitingFirstKVEvent",
    "False/NoKVEventsObserved",
    "False/EngineKernelDegraded",
    *EXTERNAL,
    *PROBE_FAILURES,
    *CONNECTOR,
    *STORE,
}
CATALOGUE = {
    "Ready": READY,
    "Degraded": {"True/ReplicasUnavailable", "True/NoKVEventsObserved", "False/NotDegraded"},
    "Progressing": {
        "True/RolloutInProgress",
        "True/AwaitingFirstKVEvent",
        "False/Synced",
        "False/Degraded",
        *(f"False/{each.partition('/')[2]}" for each in READY),
    },
    "ConnectorReady": CONNECTOR,
    "RemoteStorageReady": {"True/RemoteStorageReady", *STORE, *EXTERNAL},
    "FunctionalProbeOK": {"True/ProbeOK", "True/ProbeBypassed", "Unknown/ProbeError", *PROBE_FAILURES},
    "EngineKernelsHealthy": {
        "True/KernelsHealthy",
        "False/KernelLoadFailed",
        "Unknown/KernelCheckError",
        "Unknown/KernelCheckPending",
    },
    "EngineCompatibility": {"False/InjectedEngineCrashLooping"},
    "T2Degraded": {"True/T2ZeroHitRate", "False/T2Serving"},
}

RARELY = st.sampled_from([False, False, False, True])
STORAGES: list[Document | None] = [
    None,
    {"provider": "Redis", "ownership": "Managed"},
    {"provider": "Redis", "ownership": "Managed"},
    {"provider": "Redis", "ownership": "Managed", "redis": {"resources": {"limits": {"memory": "1024Mi"}}}},
    {"provider": "Redis", "ownership": "External", "endpoint": "redis.x:6379"},
    {"provider": "Redis", "ownership": "External", "endpoint": "redis"},
    {"provider": "Redis", "ownership": "External"},
    {"provider": "Other", "ownership": "Managed"},
]


@st.composite
def backends(draw: st.DrawFn) -> Document:
    """A backend, admitted or not, with whatever status an earlier life of its spec has left."""
    kinds = [pod_local(), pod_local(), node_local(), node_local(), hi_cache(), events_only()]
    document = of_case(draw(st.sampled_from(kinds)))
    document = change(document, "spec.remoteStorage", draw(st.sampled_from(STORAGES)))
    if draw(st.booleans()):
        document = change(document, "spec.integration.failOpen", draw(st.booleans()))
    if draw(RARELY):
        document = change(document, "spec.runtime", draw(st.sampled_from(["VLLM", "SGLang", "TGI"])))
    if draw(RARELY):
        document = change(document, "spec.engineSelector", None)
    marks = {
        f"{MARK}require-kv-events": "false" if draw(RARELY) else "",
        f"{MARK}skip-functional-probe": "true" if draw(RARELY) else "",
    }
    document["metadata"]["annotations"] = marks
    if draw(st.booleans()):
        participation: Document = {"prefixCount": draw(st.integers(0, 3))}
        if draw(st.booleans()):
            participation["lastEventAt"] = "2026-03-01T11:00:00Z"
        if draw(st.booleans()):
            participation["t2HitRate"] = draw(st.sampled_from(["0", "0.5"]))
        document = change(document, "status.indexParticipation", participation)
    if draw(st.booleans()):
        document = change(document, "status.firstAvailableAt", "2026-03-01T11:57:00Z")
    if draw(st.booleans()):
        old = {"type": "Ready", "status": "False", "reason": "NoKVEventsObserved", "message": ""}
        old["lastTransitionTime"] = "2026-03-01T11:00:00Z"
        stored = {"provider": "Redis", "endpoint": "a:1", "ready": "True"}
        document = change(change(document, "status.conditions", [old]), "status.remoteStorage", stored)
    return document


ENDS: list[Document | None] = [
    None,
    {"message": "OK", "exitCode": 0},
    {"message": "FAIL: x", "exitCode": 1},
    {"message": "?", "exitCode": 1},
]


@st.composite
def pods(draw: st.DrawFn) -> list[Document]:
    """Engines of any kind and servers of nodes."""
    made: list[Document] = []
    for name in () if draw(RARELY) else draw(st.sets(st.sampled_from("abc"), min_size=1)):
        if draw(st.booleans()):
            pod = checked(name, draw(st.sampled_from(ENDS)), strict=draw(st.booleans()))
        else:
            waiting = {"state": {"waiting": {"reason": draw(st.sampled_from(["CrashLoopBackOff", "Other"]))}}}
            pod = engine(name, statuses=[{"name": "vllm"} | waiting], served=not draw(RARELY))
        if draw(RARELY):
            pod["metadata"]["annotations"] = draw(
                st.sampled_from([stamps(generation=0), stamps(uid="u0"), {}])
            )
        if node := draw(st.sampled_from(["node-a", "node-a", "node-b", ""])):
            pod["spec"]["nodeName"] = node
        made.append(copy.deepcopy(pod))
    nodes = draw(st.sets(st.sampled_from(["node-a", "node-b"])))
    generation = draw(st.sampled_from([0, 1, 1]))
    made += [node_server(node, ready=not draw(RARELY), generation=generation) for node in nodes]
    return made


FAILED = ProbeResult("r", "ns-a/cache", "ok", "failed", "skipped", (ProbeFailure("routing", "no"),))
answers = st.sampled_from([None, [ALL_OK], [FAILED], [NO_ANSWER], [ProbeResult("r", "ns-a/cache")]])
rollouts = st.sampled_from([None, (0, 0), (1, 0), (1, 1), (1, 1)])
OWNERS: list[list[Document] | None] = [None, None, None, [], [owner("u0")], [owner()]]
occupants = st.sampled_from(OWNERS)


async def passed(passes: Passes) -> str:
    """What a pass failed with, if it did."""
    try:
        await passes.run()
    except (KubeError, RetryError) as error:
        return str(error)
    return ""


def check_published(passes: Passes) -> None:
    backend = Backend(passes.backend)
    path = choose_path(backend)
    verdicts = passes.verdicts
    for type_, verdict in verdicts.items():
        assert verdict in CATALOGUE[type_]
    assert verdicts.keys() - {"ConnectorReady"} <= PUBLISHED[path]
    if not backend.is_typed_mp:
        assert "ConnectorReady" not in verdicts
        assert "RemoteStorageReady" not in verdicts
    if verdicts.get("Ready", "").startswith("True/"):
        assert verdicts["Progressing"] == "False/Synced"
        if backend.is_typed_mp and backend.mode != EVENTS_ONLY:
            assert verdicts["ConnectorReady"].startswith("True/")
    store = passes.status.get("remoteStorage")
    assert (store is None) == ("RemoteStorageReady" not in verdicts)
    if store is not None:
        assert store["ready"] == passes.condition("RemoteStorageReady")["status"]
    if path is Path.UNMANAGED:
        assert verdicts.keys() <= {"ConnectorReady"}
    msgspec.convert(passes.status, CacheBackendStatus)
    assert unknown_fields(passes.status, CacheBackendStatus) == []


@pytest.mark.rule(
    "CTL-19", "CTL-21", "CTL-24", "CTL-43", "CTL-103", "CTL-106", "CTL-109", "CTL-149", "CTL-150"
)
@given(backends(), pods(), answers, rollouts, occupants)
def test_passes_settle_in_the_catalogue_of_the_contract(
    document: Document,
    cluster: list[Document],
    answers: list[Any] | None,
    rollout: tuple[int, int] | None,
    occupant: list[Any] | None,
) -> None:
    passes = Passes(document, *cluster, answers=answers)
    if occupant is not None:
        metadata = {"name": "cache", "namespace": "ns-a", "ownerReferences": occupant}
        pod = {"containers": [{"name": "mine"}], "volumes": [{"name": "v"}], "hostNetwork": True}
        spec = {"replicas": 3, "strategy": {"type": "Recreate"}, "template": {"spec": pod}}
        passes.kube.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
        passes.kube.put(SERVICES, {"metadata": metadata, "spec": {"ports": []}})
    participation = passes.status.get("indexParticipation")

    async def story() -> None:
        await passed(passes)
        check_published(passes)
        if rollout is not None and passes.kube.stored(DEPLOYMENTS, "cache", "ns-a"):
            passes.roll_out(updated=rollout[0], available=rollout[1])
        for _ in range(2):  # one that follows what was learned of the connector, one that follows a probe
            await passed(passes)
            check_published(passes)
        problem = await passed(passes)
        settled, writes, told = passes.kube.objects.copy(), passes.kube.writes, passes.events
        assert await passed(passes) == problem
        assert passes.kube.writes == writes
        assert passes.kube.objects == settled
        assert passes.events == told
        assert passes.status.get("indexParticipation") == participation

    asyncio.run(story())
