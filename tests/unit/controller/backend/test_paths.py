"""What a spec asks of the controller, and what each path publishes and takes away."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.backend.paths import Path, choose_path
from inferencecache.core.kube.api import UnansweredError
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import DEPLOYMENTS, SERVICES, Document
from tests.support.backend_passes import Passes, at, engine, managed, of_case, owner
from tests.support.backends import REDIS, change, events_only, hi_cache, node_local, pod_local

rule = pytest.mark.rule
EXTERNAL = {"provider": "Redis", "ownership": "External", "endpoint": "redis.x:6379"}


def with_storage(document: Document, storage: Document) -> Document:
    return change(document, "spec.remoteStorage", storage)


@rule("CTL-25", "CTL-26", "CTL-27", "CTL-28", "CTL-29")
@pytest.mark.parametrize(
    ("document", "path"),
    [
        pytest.param(events_only(), Path.EVENTS_ONLY, id="events only"),
        pytest.param(events_only("SGLang"), Path.EVENTS_ONLY, id="events of sglang"),
        pytest.param(with_storage(events_only(), REDIS), Path.EVENTS_ONLY, id="events outrank a store"),
        pytest.param(
            change(hi_cache(), "spec.integration.mode", "EventsOnly"),
            Path.EVENTS_ONLY,
            id="events of hicache",
        ),
        pytest.param(change(events_only(), "spec.runtime", "TGI"), Path.UNMANAGED, id="events, no adapter"),
        pytest.param(change(pod_local(), "spec.runtime", None), Path.UNMANAGED, id="no runtime"),
        pytest.param(change(pod_local(), "spec.lmCache", None), Path.UNMANAGED, id="no topology"),
        pytest.param(
            change(pod_local(), "spec.lmCache.topology", "Other"), Path.UNMANAGED, id="other topology"
        ),
        pytest.param(change(hi_cache(), "spec.runtime", "VLLM"), Path.UNMANAGED, id="hicache of vllm"),
        pytest.param(change(hi_cache(), "spec.type", ""), Path.UNMANAGED, id="an empty type is LMCache"),
        pytest.param(change(pod_local(), "spec.type", ""), Path.HOST_ONLY, id="an empty type with topology"),
        pytest.param(pod_local(), Path.HOST_ONLY, id="host only in pods"),
        pytest.param(node_local("SGLang"), Path.HOST_ONLY, id="host only on nodes"),
        pytest.param(hi_cache(), Path.HOST_ONLY, id="hicache"),
        pytest.param(with_storage(pod_local(), EXTERNAL), Path.EXTERNAL, id="external"),
        pytest.param(with_storage(node_local(), REDIS), Path.MANAGED, id="managed"),
        pytest.param(with_storage(hi_cache(), REDIS), Path.UNMANAGED, id="hicache, managed"),
        pytest.param(with_storage(hi_cache(), EXTERNAL), Path.UNMANAGED, id="hicache, external"),
        pytest.param(
            with_storage(pod_local(), REDIS | {"provider": "Other"}), Path.UNMANAGED, id="managed other"
        ),
        pytest.param(
            with_storage(pod_local(), EXTERNAL | {"provider": "Other"}), Path.UNMANAGED, id="external other"
        ),
        pytest.param(with_storage(pod_local(), {"provider": "Redis"}), Path.UNMANAGED, id="nobody's store"),
    ],
)
def test_the_first_row_that_fits_is_the_path(document: Document, path: Path) -> None:
    assert choose_path(Backend(document)) is path


@rule("CTL-28", "CTL-59", "CTL-60", "CTL-63", "CTL-150")
async def test_hicache_is_ready_once_events_are_seen_or_not_asked_for() -> None:
    passes = Passes(of_case(hi_cache()), engine(containers=["sglang"]))
    await passes.run()
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:00:00Z"
    assert passes.verdicts == {
        "Ready": "False/AwaitingFirstKVEvent",
        "Degraded": "False/NotDegraded",
        "Progressing": "True/AwaitingFirstKVEvent",
    }
    assert "connector" not in passes.status
    assert passes.status["observedGeneration"] == 1
    passes.annotate(require_kv_events="false")
    await passes.run()
    assert passes.verdicts["Ready"] == "True/HostOnlyActive"
    assert passes.verdicts["Progressing"] == "False/Synced"


@rule("CTL-61", "CTL-62", "CTL-150")
async def test_a_backend_that_is_only_observed_is_ready_with_the_gate_off() -> None:
    passes = Passes(of_case(events_only()))
    passes.annotate(require_kv_events="false")
    await passes.run()
    assert passes.verdicts == {
        "Ready": "True/EventsOnlyActive",
        "Degraded": "False/NotDegraded",
        "Progressing": "False/Synced",
    }


@rule("CTL-62", "CTL-88", "CTL-89")
async def test_a_typed_block_keeps_its_connector_where_only_events_are_wanted() -> None:
    passes = Passes(of_case(change(pod_local(), "spec.integration.mode", "EventsOnly")), engine())
    await passes.run()
    assert passes.verdicts["ConnectorReady"] == "True/ConnectorReady"
    assert passes.verdicts["Ready"] == "False/AwaitingFirstKVEvent"
    assert "EngineKernelsHealthy" not in passes.verdicts


@rule("CTL-59", "CTL-60", "CTL-63", "CTL-103")
async def test_a_backend_in_host_memory_waits_from_when_its_engines_are_served() -> None:
    passes = Passes(of_case(pod_local()))
    await passes.settle()
    assert "firstAvailableAt" not in passes.status
    assert passes.verdicts["Ready"] == "False/NoEnginePods"
    passes.put_pods(engine())
    passes.now = at(3)
    await passes.settle()
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:03:00Z"
    assert passes.verdicts == {
        "Ready": "False/AwaitingFirstKVEvent",
        "Degraded": "False/NotDegraded",
        "Progressing": "True/AwaitingFirstKVEvent",
        "ConnectorReady": "True/ConnectorReady",
    }
    assert "remoteStorage" not in passes.status


async def serving_managed(document: Document) -> Passes:
    passes = Passes(document, engine())
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.run()
    passes.roll_out()
    await passes.run()
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    return passes


@rule("CTL-65", "CTL-151")
async def test_an_unmanaged_backend_says_nothing_and_keeps_what_was_seen() -> None:
    passes = await serving_managed(managed())
    passes.change("spec", with_storage(hi_cache(), REDIS)["spec"])
    passes.change("spec.engineSelector", None)
    assert await passes.run(at(1)) is None
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is None
    assert passes.kube.stored(SERVICES, "cache", "ns-a") is None
    assert passes.status == {
        "failOpen": True,
        "observedGeneration": 3,
        "firstKVEventObservedAt": "2026-03-01T11:59:00Z",
        "indexParticipation": {"prefixCount": 1, "lastEventAt": "2026-03-01T11:59:00Z"},
    }


@rule("CTL-66")
async def test_an_unmanaged_backend_with_servers_keeps_its_connector() -> None:
    passes = await serving_managed(managed())
    since = passes.condition("ConnectorReady")["lastTransitionTime"]
    passes.change("spec.runtime", "TGI")
    for minute in (1, 2):
        await passes.run(at(minute))
        assert passes.verdicts == {"ConnectorReady": "Unknown/ConnectorInjectionUnverified"}
    assert passes.condition("ConnectorReady")["lastTransitionTime"] != since
    unverified = passes.condition("ConnectorReady")["lastTransitionTime"]
    await passes.run(at(3))
    assert passes.condition("ConnectorReady")["lastTransitionTime"] == unverified


@rule("CTL-65")
async def test_a_deletion_that_fails_leaves_the_status_as_it_was() -> None:
    passes = await serving_managed(managed())
    before = dict(passes.verdicts)
    passes.change("spec.runtime", "TGI")
    passes.kube.fail.add(("delete", "Service"))
    with pytest.raises(UnansweredError):
        await passes.run(at(1))
    assert passes.verdicts == before | {"ConnectorReady": "Unknown/ConnectorInjectionUnverified"}
    assert passes.status["observedGeneration"] == 1


@rule("CTL-51")
@pytest.mark.parametrize("references", [[], [owner("u0")]], ids=["nobody's", "somebody's"])
async def test_an_object_of_somebody_else_is_not_deleted(references: list[Any]) -> None:
    passes = Passes(of_case(pod_local()))
    for kind in (DEPLOYMENTS, SERVICES):
        metadata = {"name": "cache", "namespace": "ns-a", "ownerReferences": references}
        passes.kube.put(kind, {"metadata": metadata, "spec": {}})
    await passes.run()
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is not None
    assert passes.kube.stored(SERVICES, "cache", "ns-a") is not None
    assert passes.kube.writes == 1, "the status alone"
