"""Worked cases of the contract about backends, as passes over a played cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inferencecache.controller.backend.probe_gate import ProbeAnswer
from inferencecache.controller.backend.reconciler import SNAPSHOT_S
from inferencecache.controller.backend.workload_objects import ForeignObjectError
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.api import UnansweredError
from inferencecache.core.kube.kinds import CACHE_BACKENDS, DEPLOYMENTS, PODS, SERVICES, Document
from inferencecache.schemas.requests import ProbeFailure, ProbeResult
from tests.support.backend_passes import (
    ALL_OK,
    ENDPOINT,
    NO_ANSWER,
    Passes,
    at,
    checked,
    engine,
    external,
    managed,
    of_case,
    owner,
    stamps,
)
from tests.support.backends import REDIS, change, events_only, hi_cache, pod_local

rule = pytest.mark.rule


async def ready_managed(answers: Sequence[ProbeAnswer] | None = None) -> Passes:
    """A managed backend whose engine is served and whose Redis is up; no event yet."""
    passes = Passes(managed(), engine(), answers=answers)
    await passes.run()
    passes.roll_out()
    await passes.run()
    return passes


# ------------------------------------------------------------------------------- W5, W6: first passes


@rule("CTL-W5", "CTL-12", "CTL-93", "CTL-104", "CTL-108", "CTL-109", "CTL-143", "CTL-144")
async def test_a_new_backend_is_unverified_for_one_pass() -> None:
    passes = Passes(managed())
    await passes.run()
    assert passes.verdicts == {
        "RemoteStorageReady": "Unknown/RemoteStoragePending",
        "Ready": "Unknown/ConnectorInjectionUnverified",
        "Degraded": "False/NotDegraded",
        "Progressing": "False/ConnectorInjectionUnverified",
        "ConnectorReady": "False/NoEnginePods",
    }
    assert passes.condition("RemoteStorageReady")["message"] == "0/1 replicas updated"
    assert passes.status["remoteStorage"] == {"provider": "Redis", "endpoint": ENDPOINT, "ready": "Unknown"}
    await passes.run()
    assert passes.verdicts["Ready"] == "False/NoEnginePods"


@rule("CTL-W6", "CTL-104", "CTL-108", "CTL-145")
@pytest.mark.parametrize("fail_open", [None, False])
async def test_a_redis_that_is_down_gates_only_a_backend_that_fails_closed(fail_open: bool | None) -> None:
    document = change(managed(), "spec.integration.failOpen", fail_open)
    passes = Passes(document, engine())
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.run()
    passes.roll_out(available=0)
    await passes.run()
    assert passes.verdicts["RemoteStorageReady"] == "False/RemoteStorageUnavailable"
    assert passes.condition("RemoteStorageReady")["message"] == "0/1 replicas available"
    assert passes.status["remoteStorage"] == {"provider": "Redis", "endpoint": ENDPOINT, "ready": "False"}
    assert passes.verdicts["Degraded"] == "False/NotDegraded"
    if fail_open is None:
        assert passes.verdicts["Ready"] == "True/KVEventsObserved"
        assert passes.verdicts["Progressing"] == "False/Synced"
    else:
        assert passes.verdicts["Ready"] == "False/RemoteStorageUnavailable"
        assert passes.verdicts["Progressing"] == "False/RemoteStorageUnavailable"
    assert "FunctionalProbeOK" not in passes.verdicts


@rule("CTL-107", "CTL-150")
async def test_a_redis_that_rolls_out_makes_a_backend_that_fails_closed_unknown() -> None:
    passes = Passes(change(managed(), "spec.integration.failOpen", value=False), engine())
    await passes.settle()
    assert passes.verdicts["Ready"] == "Unknown/RemoteStoragePending"
    assert passes.verdicts["Progressing"] == "False/RemoteStoragePending"


# ------------------------------------------------------------------- W7 to W10: the gate for KV events


@rule("CTL-W7", "CTL-17", "CTL-110", "CTL-115", "CTL-116", "CTL-118")
async def test_the_wait_for_a_first_event_ends_to_the_second() -> None:
    passes = await ready_managed()
    assert passes.verdicts["Ready"] == "False/AwaitingFirstKVEvent"
    assert passes.verdicts["Progressing"] == "True/AwaitingFirstKVEvent"
    assert passes.verdicts["Degraded"] == "False/NotDegraded"
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:00:00Z"
    assert "within 5m" in passes.condition("Ready")["message"]
    assert await passes.run(at(3, 10)) == SNAPSHOT_S
    assert passes.verdicts["Ready"] == "False/AwaitingFirstKVEvent"
    assert await passes.run(at(4, 50)) == 10, "the gate asks for less than the snapshot"
    await passes.run(at(5))
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"
    assert passes.verdicts["Degraded"] == "True/NoKVEventsObserved"
    assert passes.verdicts["Progressing"] == "False/NoKVEventsObserved"
    message = passes.condition("Ready")["message"]
    assert "the workload is available" in message
    assert "within 5m" in message
    assert "--kv-events-config" in message
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:00:00Z"


@rule("CTL-W7", "CTL-116")
async def test_without_a_selector_only_the_gate_and_redis_ask_to_look_again() -> None:
    passes = Passes(change(of_case(hi_cache()), "spec.engineSelector", None))
    assert await passes.run() == 300
    assert await passes.run(at(3, 10)) == 110
    assert await passes.run(at(5)) is None


@rule("CTL-W8", "CTL-112", "CTL-113", "CTL-117", "CTL-119", "CTL-211")
@pytest.mark.parametrize("document", [hi_cache(), events_only()], ids=["host-only", "events-only"])
async def test_only_an_event_ends_a_breach(document: Document) -> None:
    passes = Passes(of_case(document))
    await passes.run()
    await passes.run(at(5))
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"
    passes.change("spec.observation.firstEventTimeout", "30m")
    await passes.run(at(6))
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"
    assert passes.verdicts["Degraded"] == "True/NoKVEventsObserved"
    passes.observe_event("2026-03-01T12:07:00Z")
    await passes.run(at(7))
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    assert passes.verdicts["Degraded"] == "False/NotDegraded"
    assert passes.status["firstKVEventObservedAt"] == "2026-03-01T12:07:00Z"
    assert passes.events == ["AwaitingFirstKVEvent", "NoKVEventsObserved", "KVEventsObserved"]


@rule("CTL-117")
async def test_engines_that_are_gone_for_a_while_do_not_begin_the_wait_anew() -> None:
    passes = await ready_managed()
    await passes.run(at(5))
    passes.kube.drop(PODS, "e1", "ns-a")
    passes.now = at(6)
    await passes.settle()
    assert passes.verdicts["Ready"] == "False/NoEnginePods"
    passes.put_pods(engine())
    await passes.settle()
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"


@rule("CTL-W9", "CTL-112", "CTL-113")
async def test_a_backend_that_drains_stays_ready() -> None:
    passes = await ready_managed()
    passes.observe_event("2026-03-01T12:01:00Z")
    await passes.run(at(1))
    told = list(passes.events)
    passes.change("status.indexParticipation", {"prefixCount": 0})
    await passes.run(at(9))
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    assert passes.status["firstKVEventObservedAt"] == "2026-03-01T12:01:00Z"
    assert passes.events == told


@rule("CTL-W10", "CTL-26", "CTL-61", "CTL-62", "CTL-63", "CTL-64", "CTL-88")
async def test_a_backend_that_is_only_observed_from_now_on_waits_anew() -> None:
    passes = await ready_managed(answers=[ALL_OK])
    await passes.run(at(5))
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"
    observed = change(events_only(), "spec.engineSelector", None)["spec"]
    passes.change("spec", observed | {"remoteStorage": REDIS})
    assert await passes.run(at(20)) == 300
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is None
    assert passes.kube.stored(SERVICES, "cache", "ns-a") is None
    assert "remoteStorage" not in passes.status
    assert "connector" not in passes.status
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:20:00Z"
    assert passes.verdicts == {
        "Ready": "False/AwaitingFirstKVEvent",
        "Degraded": "False/NotDegraded",
        "Progressing": "True/AwaitingFirstKVEvent",
    }
    assert "the backend is wired" in passes.condition("Ready")["message"]
    await passes.run(at(24, 59))
    assert passes.verdicts["Ready"] == "False/AwaitingFirstKVEvent"
    await passes.run(at(25))
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"
    assert passes.verdicts["Degraded"] == "True/NoKVEventsObserved"


@rule("CTL-64")
async def test_a_typed_backend_that_loses_its_store_waits_from_when_its_engines_are_served() -> None:
    passes = await ready_managed()
    await passes.run(at(5))
    passes.change("spec.remoteStorage", None)
    await passes.run(at(20))  # engines are of the generation before
    assert "firstAvailableAt" not in passes.status
    assert passes.verdicts["Ready"] == "Unknown/ConnectorInjectionUnverified"
    passes.put_pods(engine(marks=stamps(generation=2)))
    passes.now = at(30)
    await passes.settle()
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:30:00Z"
    assert passes.verdicts["Ready"] == "False/AwaitingFirstKVEvent"


@rule("CTL-111")
async def test_the_gate_can_be_switched_off_by_one_word_only() -> None:
    passes = await ready_managed()
    for value, ready in (("False", "False/AwaitingFirstKVEvent"), ("false", "True/ConnectorReady")):
        passes.annotate(require_kv_events=value)
        await passes.run()
        assert passes.verdicts["Ready"] == ready
    # An event is still noted, so that the gate knows of it once it is switched on again.
    passes.observe_event("2026-03-01T12:07:00Z")
    await passes.run()
    assert passes.status["firstKVEventObservedAt"] == "2026-03-01T12:07:00Z"


@rule("CTL-114")
@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, 300), ("0", 300), ("-5m", 300), ("90s", 90), ("1.5s", 1.5)]
)
async def test_the_wait_is_five_minutes_unless_the_backend_says_more_than_nothing(
    timeout: str | None, seconds: float
) -> None:
    document = change(of_case(hi_cache()), "spec.observation.firstEventTimeout", timeout)
    passes = Passes(change(document, "spec.engineSelector", None))
    assert await passes.run() == seconds


# --------------------------------------------------------------------- W11 to W13: the functional probe

ROUTING = ProbeResult("r", "ns-a/cache", "ok", "failed", "skipped", (ProbeFailure("routing", "got NO_HINT"),))


async def serving(*answers: ProbeAnswer, **annotations: str) -> Passes:
    """A managed backend that is ready but for probes, whose first pass with one is still to come."""
    document = managed()
    document["metadata"]["annotations"] = annotations
    passes = Passes(document, engine(), answers=answers)
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.run(at(-1))
    passes.roll_out()
    assert passes.asked == [], "no probe is made before the gates let through"
    return passes


@rule("CTL-W11", "CTL-120", "CTL-123", "CTL-124", "CTL-126", "CTL-127", "CTL-128", "CTL-129")
async def test_a_probe_that_failed_holds_until_one_succeeds() -> None:
    passes = await serving(ROUTING, NO_ANSWER, ALL_OK)
    assert await passes.run(at()) == SNAPSHOT_S
    failed = {"FunctionalProbeOK": "False/ProbeRoutingFailed", "Ready": "False/ProbeRoutingFailed"}
    assert passes.verdicts.items() >= failed.items()
    assert passes.condition("FunctionalProbeOK")["message"] == "got NO_HINT"
    assert passes.condition("Ready")["message"] == "functional probe failed: got NO_HINT"
    assert passes.verdicts["Degraded"] == "False/NotDegraded"
    assert passes.verdicts["Progressing"] == "False/ProbeRoutingFailed"
    writes = passes.kube.writes
    assert await passes.run(at(0, 12)) == 18
    assert len(passes.asked) == 1
    assert passes.verdicts.items() >= failed.items()
    assert await passes.run(at(0, 30)) == SNAPSHOT_S
    assert len(passes.asked) == 2
    assert passes.verdicts.items() >= failed.items()
    assert passes.condition("Ready")["message"] == "functional probe failed: got NO_HINT"
    assert passes.kube.writes == writes, "nothing became different"
    await passes.run(at(0, 31))
    assert len(passes.asked) == 3
    passed = {"FunctionalProbeOK": "True/ProbeOK", "Ready": "True/KVEventsObserved"}
    assert passes.verdicts.items() >= passed.items()


@rule("CTL-W12", "CTL-122", "CTL-125")
async def test_an_answer_without_stages_fails() -> None:
    passes = await serving(ProbeResult("r", "ns-a/cache"))
    await passes.run(at())
    assert passes.verdicts["FunctionalProbeOK"] == "False/ProbeError"
    assert 'ingest="" routing="" t2=""' in passes.condition("FunctionalProbeOK")["message"]
    assert passes.verdicts["Ready"] == "False/ProbeError"


@rule("CTL-W13", "CTL-127", "CTL-128", "CTL-129")
async def test_a_probe_without_an_answer_says_nothing_about_the_backend() -> None:
    passes = await serving(NO_ANSWER)
    assert await passes.run(at()) == SNAPSHOT_S
    assert passes.verdicts["FunctionalProbeOK"] == "Unknown/ProbeError"
    assert passes.condition("FunctionalProbeOK")["message"].startswith("probe call failed: no answer")
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    await passes.run(at(0, 1))
    assert len(passes.asked) == 2, "only an answer counts for half a minute"


@rule("CTL-128")
async def test_an_answer_that_could_not_be_stored_is_asked_for_again() -> None:
    passes = await serving(ALL_OK)
    passes.kube.fail.add(("status", "CacheBackend"))
    with pytest.raises(UnansweredError):
        await passes.run(at())
    passes.kube.fail.clear()
    await passes.run(at(0, 1))
    assert len(passes.asked) == 2
    assert passes.verdicts["FunctionalProbeOK"] == "True/ProbeOK"


@rule("CTL-120", "CTL-226")
@pytest.mark.parametrize(
    ("value", "is_bypassed"), [("true", True), ("True", False), ("1", False), ("", False)]
)
async def test_a_probe_is_bypassed_by_one_word_only(value: str, *, is_bypassed: bool) -> None:
    passes = await serving(ALL_OK, **{"inferencecache.io/skip-functional-probe": value})
    await passes.run(at())
    reason = "ProbeBypassed" if is_bypassed else "ProbeOK"
    assert passes.verdicts["FunctionalProbeOK"] == f"True/{reason}"
    assert len(passes.asked) == (not is_bypassed)


@rule("CTL-120")
async def test_without_probing_an_old_result_goes_even_while_the_backend_is_not_ready() -> None:
    passes = Passes(managed(), answers=None)
    failed = {"type": "FunctionalProbeOK", "status": "False", "reason": "ProbeError", "message": "m"}
    failed["lastTransitionTime"] = "2026-03-01T11:00:00Z"
    passes.change("status.conditions", [failed])
    await passes.run()
    assert "FunctionalProbeOK" not in passes.verdicts


@rule("CTL-120")
async def test_while_a_gate_before_it_holds_the_probe_is_neither_asked_nor_forgotten() -> None:
    passes = await serving(ROUTING)
    await passes.run(at())
    passes.put_pods(engine(served=False))
    passes.now = at(2)
    await passes.settle()
    assert passes.verdicts["Ready"] == "False/MPServersNotReady"
    assert passes.verdicts["FunctionalProbeOK"] == "False/ProbeRoutingFailed"
    assert len(passes.asked) == 2, "the pass before still took the connector to be ready"


@rule("CTL-120")
async def test_a_result_that_holds_on_stays_about_the_generation_that_was_probed() -> None:
    passes = await serving(ROUTING)
    await passes.run(at())
    passes.change("spec.observation.modelID", "m")
    passes.now = at(0, 10)
    await passes.settle()
    assert passes.condition("Ready")["observedGeneration"] == 2
    assert passes.condition("FunctionalProbeOK")["observedGeneration"] == 1
    passes.put_pods(engine(marks=stamps(generation=2)))
    passes.now = at(1)
    await passes.settle()
    assert passes.condition("FunctionalProbeOK")["observedGeneration"] == 2


@rule("CTL-130")
async def test_a_backend_that_leaves_the_managed_path_is_probed_at_once_when_it_is_back() -> None:
    passes = await serving(ALL_OK)
    await passes.run(at())
    storage = passes.backend["spec"]["remoteStorage"]
    passes.change("spec.remoteStorage", None)
    passes.put_pods(engine(marks=stamps(generation=2)))
    await passes.run(at(0, 1))
    assert "FunctionalProbeOK" not in passes.verdicts
    passes.change("spec.remoteStorage", storage)
    passes.put_pods(engine(marks=stamps(generation=3)))
    passes.now = at(0, 2)
    await passes.settle()
    assert len(passes.asked) == 2


@rule("CTL-14", "CTL-130")
async def test_a_backend_that_was_deleted_is_forgotten() -> None:
    passes = await serving(ALL_OK)
    await passes.run(at())
    document = passes.backend
    passes.kube.drop(CACHE_BACKENDS, "cache", "ns-a")
    assert await passes.run(at(0, 1)) is None
    passes.kube.put(CACHE_BACKENDS, document)
    await passes.run(at(0, 2))
    assert len(passes.asked) == 2


# ------------------------------------------------------------------------------- W15: engine kernels


@rule("CTL-W15", "CTL-139", "CTL-140", "CTL-141", "CTL-142")
async def test_kernels_are_as_good_as_the_worst_engines() -> None:
    passes = Passes(managed(), checked("a", {"message": "OK", "exitCode": 0}), checked("b"))
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.run()
    passes.roll_out()
    await passes.run()
    assert passes.verdicts["EngineKernelsHealthy"] == "Unknown/KernelCheckPending"
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    text = "FAIL: libcudart.so.13 cannot be opened"
    passes.put_pods(checked("b", {"message": text, "exitCode": 0}))
    await passes.run()
    assert passes.verdicts["EngineKernelsHealthy"] == "False/KernelLoadFailed"
    message = passes.condition("EngineKernelsHealthy")["message"]
    assert "1 of 2 pods" in message
    assert text in message
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    passes.put_pods(checked("b", {"message": text, "exitCode": 1}, strict=True))
    await passes.run()
    assert passes.verdicts["EngineKernelsHealthy"] == "False/KernelLoadFailed"
    assert passes.verdicts["Ready"] == "False/EngineKernelDegraded"
    assert passes.verdicts["Degraded"] == "False/NotDegraded"
    assert passes.verdicts["Progressing"] == "False/EngineKernelDegraded"


@rule("CTL-W15", "CTL-140")
async def test_a_check_that_ends_otherwise_than_it_says_is_an_error() -> None:
    passes = Passes(managed(), checked("a", {"message": "OK", "exitCode": 1, "reason": "Error"}))
    await passes.run()
    assert passes.verdicts["EngineKernelsHealthy"] == "Unknown/KernelCheckError"
    message = passes.condition("EngineKernelsHealthy")["message"]
    assert "exit 1" in message
    assert "Error" in message
    assert "OK" in message


# --------------------------------------------------------------------------------- W16: external Redis


@rule("CTL-W16", "CTL-53", "CTL-54", "CTL-55", "CTL-56", "CTL-57", "CTL-105")
@pytest.mark.parametrize(
    ("endpoint", "is_accepted"),
    [
        (" redis.x:6379 ", True),
        ("redis.x", False),
        ("redis://redis.x:6379", False),
        ("fe80::1:6379", False),
        ("[fe80::1]:6379", True),
        ("redis.x:0", False),
    ],
)
async def test_an_external_endpoint_is_judged_by_its_shape(endpoint: str, *, is_accepted: bool) -> None:
    passes = Passes(external(endpoint), engine())
    await passes.settle()
    shown = passes.status["remoteStorage"]
    assert shown["endpoint"] == endpoint.strip()
    if is_accepted:
        assert shown["ready"] == "True"
        assert passes.verdicts["RemoteStorageReady"] == "True/RemoteStorageReady"
    else:
        assert shown["ready"] == "False"
        assert passes.verdicts["RemoteStorageReady"] == "False/ExternalEndpointInvalid"
        assert passes.condition("RemoteStorageReady")["message"].startswith("spec.remoteStorage.")
    assert passes.verdicts["Ready"] == "True/ConnectorReady"
    assert passes.verdicts.keys() == {"RemoteStorageReady", "Ready", "Progressing", "ConnectorReady"}
    assert passes.kube.calls["create", "Deployment"] == passes.kube.calls["create", "Service"] == 0


@rule("CTL-54", "CTL-56", "CTL-150")
@pytest.mark.parametrize(
    ("endpoint", "reason"), [(" ", "ExternalEndpointMissing"), ("redis", "ExternalEndpointInvalid")]
)
async def test_a_bad_endpoint_gates_a_backend_that_fails_closed(endpoint: str, reason: str) -> None:
    passes = Passes(change(external(endpoint), "spec.integration.failOpen", value=False), engine())
    await passes.settle()
    assert passes.verdicts["Ready"] == f"False/{reason}"
    assert passes.verdicts["Progressing"] == f"False/{reason}"


@rule("CTL-57", "CTL-58")
async def test_a_store_that_becomes_external_takes_the_managed_one_away_and_keeps_what_was_seen() -> None:
    passes = Passes(managed(), checked("a", {"message": "OK", "exitCode": 0}), answers=[ALL_OK])
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.run()
    passes.roll_out()
    await passes.run()
    assert passes.verdicts["EngineKernelsHealthy"] == "True/KernelsHealthy"
    storage = {"provider": "Redis", "ownership": "External", "endpoint": "redis.x:6379"}
    passes.change("spec.remoteStorage", storage)
    await passes.run(at(1))
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is None
    assert passes.kube.stored(SERVICES, "cache", "ns-a") is None
    assert passes.verdicts.keys() == {"RemoteStorageReady", "Ready", "Progressing", "ConnectorReady"}
    assert passes.status["firstKVEventObservedAt"] == "2026-03-01T11:59:00Z"
    assert passes.status["firstAvailableAt"] == "2026-03-01T12:00:00Z"
    assert passes.status["indexParticipation"]["prefixCount"] == 1
    assert passes.status["observedGeneration"] == 2


# ------------------------------------------------------------------------------------- W22: tier two


@rule("CTL-W22", "CTL-148", "CTL-149")
@pytest.mark.parametrize(
    ("rate", "verdict"), [("0", "True/T2ZeroHitRate"), ("0.25", "False/T2Serving"), (None, None)]
)
async def test_the_stores_hit_rate_is_told_and_gates_nothing(rate: str | None, verdict: str | None) -> None:
    passes = await ready_managed()
    passes.observe_event("2026-03-01T12:01:00Z")
    passes.change("status.indexParticipation.t2HitRate", rate)
    await passes.run(at(2))
    assert passes.verdicts.get("T2Degraded") == verdict
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    if verdict and rate != "0":
        assert "0.25" in passes.condition("T2Degraded")["message"]


# -------------------------------------------------------------------- W30 to W32: what is told, and when


@rule("CTL-W30", "CTL-22", "CTL-211")
async def test_failing_closed_is_told_when_it_begins_and_when_it_ends() -> None:
    passes = Passes(change(of_case(pod_local()), "spec.integration.failOpen", value=False))
    await passes.run()
    assert not passes.status["failOpen"]
    assert ("Warning", "FailClosedEnabled") in passes.kube.events()
    await passes.run()
    assert passes.events.count("FailClosedEnabled") == 1
    passes.change("spec.integration.failOpen", value=True)
    await passes.run()
    assert passes.status["failOpen"]
    assert ("Normal", "FailOpenRestored") in passes.kube.events()


def foreign(kind: str, *references: Document) -> Document:
    return {
        "apiVersion": "apps/v1" if kind == "Deployment" else "v1",
        "kind": kind,
        "metadata": {"name": "cache", "namespace": "ns-a", "ownerReferences": list(references)},
        "spec": {"replicas": 3, "template": {"spec": {"containers": []}}},
        "status": {"observedGeneration": 1, "updatedReplicas": 3, "availableReplicas": 3},
    }


@rule("CTL-W31", "CTL-43", "CTL-46", "CTL-49", "CTL-47")
@pytest.mark.parametrize("references", [[owner("u0")], []], ids=["somebody's", "nobody's"])
async def test_an_object_of_somebody_else_is_left_alone_and_told_of(references: list[Document]) -> None:
    passes = Passes(managed(), engine())
    stored = passes.kube.put(DEPLOYMENTS, foreign("Deployment", *references))
    for _ in range(2):
        with pytest.raises(ForeignObjectError):
            await passes.run()
    assert passes.deployment == stored
    assert passes.kube.stored(SERVICES, "cache", "ns-a") is None
    assert passes.verdicts["RemoteStorageReady"] == "False/RemoteStorageUnavailable"
    assert "Deployment ns-a/cache" in passes.condition("RemoteStorageReady")["message"]
    assert passes.status["remoteStorage"] == {"provider": "Redis", "endpoint": "", "ready": "False"}
    assert "observedGeneration" not in passes.status
    assert "observedGeneration" not in passes.condition("Ready")
    assert passes.condition("ConnectorReady")["observedGeneration"] == 1


@rule("CTL-50", "CTL-104")
async def test_a_service_of_somebody_else_gives_no_endpoint() -> None:
    passes = Passes(managed(), engine())
    stored = passes.kube.put(SERVICES, foreign("Service"))
    with pytest.raises(ForeignObjectError):
        await passes.run()
    passes.roll_out()
    with pytest.raises(ForeignObjectError):
        await passes.run()
    assert passes.service == stored
    assert passes.verdicts["RemoteStorageReady"] == "False/RemoteStorageUnavailable"
    assert "Service ns-a/cache" in passes.condition("RemoteStorageReady")["message"]
    assert passes.status["remoteStorage"]["endpoint"] == ""


@rule("CTL-W32", "CTL-20")
async def test_what_could_not_be_stored_is_told_only_once_it_is() -> None:
    passes = Passes(managed(), engine())
    await passes.run()
    passes.roll_out()
    told = list(passes.events)
    passes.kube.fail.add(("status", "CacheBackend"))
    with pytest.raises(UnansweredError):
        await passes.run()
    assert passes.events == told
    passes.kube.fail.clear()
    await passes.run()
    await passes.run()
    assert passes.events.count("AwaitingFirstKVEvent") == 1


# ------------------------------------------------------------------------------- passes in general


@rule("CTL-47")
async def test_a_failed_apply_does_not_freeze_the_status() -> None:
    passes = await ready_managed()
    passes.observe_event("2026-03-01T12:01:00Z")
    passes.change("spec.remoteStorage.redis.image", "redis:8")
    passes.roll_out(available=0)
    passes.kube.fail.add(("replace", "Deployment"))
    with pytest.raises(UnansweredError):
        await passes.run(at(2))
    assert passes.condition("RemoteStorageReady")["message"] == "0/1 replicas available"
    assert passes.status["observedGeneration"] == 1
    for type_ in ("Ready", "RemoteStorageReady", "Degraded", "Progressing"):
        assert passes.condition(type_)["observedGeneration"] == 1
    assert passes.condition("ConnectorReady")["observedGeneration"] == 2
    passes.kube.fail.clear()
    await passes.run(at(3))
    assert passes.status["observedGeneration"] == 2
    assert passes.condition("Ready")["observedGeneration"] == 2


@rule("CTL-48", "CTL-12", "CTL-15", "CTL-22")
async def test_without_a_deployment_to_tell_of_only_the_connector_is_refreshed() -> None:
    passes = Passes(managed(), engine())
    passes.kube.fail.add(("create", "Deployment"))
    with pytest.raises(UnansweredError):
        await passes.run()
    assert passes.verdicts == {"ConnectorReady": "True/ConnectorReady"}
    assert "observedGeneration" not in passes.status
    assert passes.status["failOpen"] is True
    assert passes.kube.calls["create", "Service"] == 0


@rule("CTL-48", "CTL-211")
async def test_why_there_is_no_deployment_is_told_once_until_there_was_one() -> None:
    passes = Passes(managed())
    told = ("Warning", "RemoteStorageUnavailable")

    async def fail_twice() -> None:
        passes.kube.fail.add(("create", "Deployment"))
        for _ in range(2):
            with pytest.raises(UnansweredError):
                await passes.run()
        passes.kube.fail.clear()

    await fail_twice()
    assert passes.kube.events().count(told) == 1
    assert passes.kube.calls["merge", "Event"] == 0
    assert "RemoteStorageReady" not in passes.verdicts
    await passes.run()
    passes.kube.drop(DEPLOYMENTS, "cache", "ns-a")
    await fail_twice()
    assert passes.kube.events().count(told) == 1
    assert passes.kube.calls["merge", "Event"] == 1  # what is told again is counted


@rule("CTL-43")
async def test_a_deployment_that_was_changed_meanwhile_is_applied_again_at_once() -> None:
    passes = await ready_managed()
    passes.change("spec.remoteStorage.redis.image", "redis:8")
    interruptions = [passes.deployment]

    def interrupt() -> None:
        if interruptions:
            passes.kube.put(DEPLOYMENTS, interruptions.pop())

    passes.kube.before_write = interrupt
    await passes.run()
    (container,) = passes.deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "redis:8"
    assert passes.kube.calls["replace", "Deployment"] == 2


@rule("CTL-19", "CTL-43")
async def test_a_pass_that_changes_nothing_writes_nothing() -> None:
    passes = await ready_managed(answers=[ALL_OK])
    passes.observe_event("2026-03-01T12:01:00Z")
    await passes.run(at(2))
    before = passes.backend
    writes = passes.kube.writes
    for minute in range(3, 9):
        await passes.run(at(minute))
    assert passes.kube.writes == writes
    assert passes.backend == before


@rule("CTL-19")
async def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    passes = await ready_managed()
    since = passes.condition("Ready")["lastTransitionTime"]
    await passes.run(at(5))
    assert passes.verdicts["Ready"] == "False/NoKVEventsObserved"
    assert passes.condition("Ready")["lastTransitionTime"] == since
    passes.observe_event("2026-03-01T12:06:00Z")
    await passes.run(at(6))
    assert passes.condition("Ready")["lastTransitionTime"] == "2026-03-01T12:06:00Z"


@rule("CTL-21")
async def test_what_the_projection_wrote_meanwhile_stays() -> None:
    passes = Passes(managed(), engine())
    projected = {"prefixCount": 7}

    def project() -> None:
        passes.kube.before_write = lambda: None
        passes.change("status.indexParticipation", projected)

    await passes.run()
    passes.roll_out()
    passes.kube.before_write = project
    await passes.run()
    assert passes.verdicts["Ready"] == "False/AwaitingFirstKVEvent"
    assert passes.status["indexParticipation"] == projected


@rule("CTL-18")
async def test_each_pass_lists_pods_anew() -> None:
    passes = Passes(managed(), engine())
    for count in (1, 2):
        await passes.run()
        assert passes.kube.calls["list", "Pod"] == count


@rule("CTL-16", "CTL-92", "CTL-139", "CTL-146")
async def test_pods_that_cannot_be_listed_change_nothing() -> None:
    crashing = engine("c", statuses=[{"name": "vllm", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}])
    failing = checked("k", {"message": "FAIL: x", "exitCode": 1}, strict=True)
    passes = Passes(managed(), crashing, failing)
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.run()
    passes.roll_out()
    await passes.run()
    assert passes.verdicts["Ready"] == "False/EngineKernelDegraded"
    before = passes.backend
    passes.kube.fail.add(("list", "Pod"))
    passes.kube.drop(PODS, "c", "ns-a")
    await passes.run(at(1))
    assert passes.backend == before


@rule("CTL-16")
async def test_a_refresh_that_cannot_be_stored_is_left_to_the_next_pass() -> None:
    passes = await ready_managed()
    passes.put_pods(engine("e2"))
    passes.kube.fail.add(("status", "CacheBackend"))
    assert await passes.run() == SNAPSHOT_S
    assert passes.status["connector"]["matchedEnginePods"] == 1
    passes.kube.fail.clear()
    await passes.run()
    assert passes.status["connector"]["matchedEnginePods"] == 2


@rule("CTL-17", "CTL-156", "CTL-158")
async def test_while_engines_churn_it_looks_again_soon() -> None:
    passes = Passes(of_case(pod_local()))
    assert await passes.run() == 30
    passes.churns = True
    assert await passes.run() == 5


@rule("CTL-15", "CTL-67")
async def test_a_failure_of_servers_is_raised_after_everything_else_was_done() -> None:
    passes = Passes(managed(), engine())
    passes.server_failure = RetryError("no list")
    with pytest.raises(RetryError, match="no list"):
        await passes.run()
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is not None
    assert passes.verdicts["ConnectorReady"] == "True/ConnectorReady"


@rule("CTL-214")
async def test_nothing_is_put_on_the_backend_but_its_status() -> None:
    passes = Passes(managed())
    before = passes.backend["metadata"]
    await passes.settle()
    assert passes.status
    versions = {"resourceVersion": passes.backend["metadata"]["resourceVersion"]}
    assert passes.backend["metadata"] == before | versions


async def test_a_backend_that_is_being_deleted_makes_nothing() -> None:
    passes = Passes(change(managed(), "metadata.deletionTimestamp", "2026-03-01T12:00:00Z"))
    assert await passes.run() is None
    assert passes.kube.writes == 0
