"""Backends at a real API server, reconciled with the controller's own rights and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kube.backend_scene import BackendScene, condition_of, scene_of, verdicts_of
from tests.kube.objects import AFFINITY, POD_SECURITY, SPREAD, TOLERATIONS
from tests.support.backends import REDIS, change, events_only, hi_cache, pod_local
from tests.support.dataplane import DataPlane
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.live_router import served_over
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
rule = pytest.mark.rule
MANAGED = change(pod_local(), "spec.remoteStorage", REDIS)
STORED = {"RemoteStorageReady": "True/RemoteStorageReady"}
PENDING = {"RemoteStorageReady": "Unknown/RemoteStoragePending"}
OBSERVED = {"inferencecache.io/require-kv-events": "false"}


@pytest.fixture
async def scene(
    operated: KubeClient,
    operated_server: ApiServer,
    operator_token: str,
    operated_namespace: str,
    nats_server: NatsServer,
) -> AsyncIterator[BackendScene]:
    async with scene_of(
        operated, operated_server, operator_token, nats_server.url, operated_namespace
    ) as scene:
        yield scene


def container_of(deployment: Document) -> Document:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: Document = container
    return found


@rule("CTL-W5", "CTL-31", "CTL-42", "CTL-107", "CTL-119", "CTL-211", "CTL-213")
async def test_a_managed_backend_becomes_ready_with_its_first_event(scene: BackendScene) -> None:
    backend = await scene.create(MANAGED)
    endpoint = f"cache.{scene.namespace}.svc.cluster.local:6379"
    backend = await scene.wait_verdicts(
        Ready="False/NoEnginePods",
        **PENDING,
        ConnectorReady="False/NoEnginePods",
        Progressing="False/NoEnginePods",
        Degraded="False/NotDegraded",
    )
    assert backend["status"]["remoteStorage"] == {
        "provider": "Redis",
        "endpoint": endpoint,
        "ready": "Unknown",
    }
    for kind in ("Deployment", "Service"):
        owned = await scene.wait_for(kind)
        (owner,) = owned["metadata"]["ownerReferences"]
        assert owner["uid"] == backend["metadata"]["uid"]
        assert owner["controller"]
        assert owner["blockOwnerDeletion"]
    await scene.run_engine()
    await scene.roll_out()
    backend = await scene.wait_verdicts(
        Ready="False/AwaitingFirstKVEvent",
        **STORED,
        ConnectorReady="True/ConnectorReady",
    )
    assert backend["status"]["firstAvailableAt"]
    assert backend["status"]["connector"]["enginePodCoverage"][0]["covered"]
    await scene.observe_event()
    backend = await scene.wait_verdicts(Ready="True/KVEventsObserved", Progressing="False/Synced")
    assert backend["status"]["firstKVEventObservedAt"] == "2026-03-01T12:00:00Z"
    assert backend["status"]["indexParticipation"]["prefixCount"] == 1
    await scene.wait_events(
        ("Warning", "NoEnginePods"),
        ("Warning", "RemoteStoragePending"),
        ("Normal", "RemoteStorageReady"),
        ("Normal", "ConnectorReady"),
        ("Normal", "AwaitingFirstKVEvent"),
        ("Normal", "KVEventsObserved"),
    )


SECURITY = {key: value for key, value in POD_SECURITY.items() if key != "windowsOptions"}
NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]}
SETTLED = [
    pytest.param(REDIS, id="plain"),
    pytest.param(
        REDIS
        | {
            "redis": {
                "image": "redis:8",
                "resources": {"requests": {"cpu": "0.5"}, "limits": {"memory": "1024Mi", "cpu": 1}},
                "authentication": {"password": {"name": "s", "key": "password"}},
            },
            "workload": {
                "nodeSelector": {"disk": "fast"},
                "affinity": AFFINITY
                | {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODES}},
                "tolerations": TOLERATIONS,
                "topologySpreadConstraints": SPREAD,
                "imagePullSecrets": [{"name": "pull"}],
                "serviceAccountName": "redis",
                "securityContext": SECURITY | {"seLinuxChangePolicy": "Recursive"},
                "priorityClassName": "",
                "schedulerName": "other",
                "runtimeClassName": "gvisor",
                "terminationGracePeriodSeconds": 0,
            },
        },
        id="with everything",
    ),
]


@rule("CTL-19", "CTL-36", "CTL-43", "CTL-44")
@pytest.mark.parametrize("storage", SETTLED)
async def test_a_settled_backend_is_not_written_to(scene: BackendScene, storage: Document) -> None:
    await scene.create(change(pod_local(), "spec.remoteStorage", storage))
    await scene.run_engine()
    await scene.wait_for("Service")
    await scene.roll_out()
    await scene.observe_event()
    await scene.wait_verdicts(Ready="True/KVEventsObserved", **STORED)
    await scene.look_again()
    writes, backend = scene.writes(), await scene.backend()
    for _ in range(3):
        await scene.look_again()
    assert scene.writes() == writes
    assert await scene.backend() == backend


@rule("CTL-34", "CTL-36", "CTL-44", "CTL-45")
async def test_what_was_changed_by_hand_is_restored(scene: BackendScene) -> None:
    await scene.create(MANAGED)
    await scene.wait_for("Service")
    original = await scene.wait_for("Deployment")
    pod = {
        "serviceAccountName": "mine",
        "nodeSelector": {"disk": "slow"},
        "containers": [{"name": "mine", "image": "mine"}, {"name": "redis-l2", "image": "redis:1"}],
    }
    strategy = {"type": "Recreate", "rollingUpdate": None}
    by_hand = {
        "metadata": {"labels": {"mine": "too"}, "annotations": {"mine": "too"}},
        "spec": {"replicas": 3, "strategy": strategy, "template": {"spec": pod}},
    }
    answer = await scene.kube.patch("Deployment", "cache", scene.namespace, by_hand)
    assert answer.status == 200, answer.body
    restored = await scene.wait_for("Deployment", lambda found: found["spec"]["replicas"] == 1)
    assert restored["spec"] == original["spec"]
    assert restored["metadata"]["labels"] == original["metadata"]["labels"]
    assert restored["metadata"]["annotations"]["mine"] == "too"
    service = await scene.wait_for("Service")
    answer = await scene.kube.patch("Service", "cache", scene.namespace, {"spec": {"selector": {"a": "b"}}})
    assert answer.status == 200, answer.body
    restored = await scene.wait_for("Service", lambda found: "a" not in found["spec"]["selector"])
    assert restored["spec"] == service["spec"]


@rule("CTL-36", "CTL-44", "CTL-52", "CTL-91")
async def test_a_changed_store_is_rolled_out_and_can_be_changed_back(scene: BackendScene) -> None:
    await scene.create(MANAGED)
    await scene.run_engine()
    await scene.wait_for("Service")
    original = await scene.wait_for("Deployment")
    await scene.roll_out()
    await scene.wait_verdicts(**STORED, ConnectorReady="True/ConnectorReady")
    changed = {
        "redis": {"image": "redis:8"},
        "workload": {"serviceAccountName": "redis", "nodeSelector": {"a": "b"}},
    }
    await scene.patch(spec={"remoteStorage": changed})
    deployment = await scene.wait_for("Deployment", lambda found: container_of(found)["image"] == "redis:8")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "redis"
    await scene.wait_verdicts(
        **PENDING,
        ConnectorReady="Unknown/ConnectorInjectionUnverified",
    )
    await scene.roll_out()
    await scene.wait_verdicts(**STORED)
    await scene.patch(spec={"remoteStorage": {"redis": None, "workload": None}})
    deployment = await scene.wait_for("Deployment", lambda found: container_of(found)["image"] != "redis:8")
    assert deployment["spec"] == original["spec"]


@rule("CTL-51", "CTL-57", "CTL-60", "CTL-62", "CTL-65")
async def test_a_backend_moves_from_path_to_path(scene: BackendScene) -> None:
    await scene.create(MANAGED)
    await scene.run_engine()
    await scene.wait_for("Service")
    await scene.roll_out()
    await scene.wait_verdicts(Ready="False/AwaitingFirstKVEvent", **STORED)
    external = {"ownership": "External", "endpoint": "redis.x:6379"}
    await scene.patch(spec={"remoteStorage": external})
    backend = await scene.wait_verdicts(
        Ready="Unknown/ConnectorInjectionUnverified",
        **STORED,
        Degraded="",
    )
    assert backend["status"]["remoteStorage"]["endpoint"] == "redis.x:6379"
    await scene.wait_gone("Deployment")
    await scene.wait_gone("Service")
    await scene.patch(spec={"remoteStorage": None})
    backend = await scene.wait_verdicts(RemoteStorageReady="", Degraded="False/NotDegraded")
    assert "remoteStorage" not in backend["status"]
    hicache = hi_cache()["spec"] | {"lmCache": None}
    await scene.patch(spec=hicache)
    backend = await scene.wait_verdicts(Ready="False/AwaitingFirstKVEvent", ConnectorReady="")
    assert "connector" not in backend["status"]
    await scene.patch(metadata={"annotations": OBSERVED})
    await scene.wait_verdicts(Ready="True/HostOnlyActive")
    await scene.patch(spec={"hiCache": None} | events_only()["spec"])
    await scene.wait_verdicts(Ready="True/EventsOnlyActive")
    await scene.patch(spec={"type": "SGLangHiCache", "runtime": "VLLM"})
    backend = await scene.wait_verdicts(Ready="", Progressing="", Degraded="")
    assert "conditions" not in backend["status"]
    assert backend["status"]["failOpen"]


@rule("CTL-W31", "CTL-43", "CTL-47", "CTL-49")
async def test_a_deployment_of_somebody_else_is_in_the_way_until_it_goes(scene: BackendScene) -> None:
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cache", "namespace": scene.namespace},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }
    answer = await scene.kube.create(foreign)
    assert answer.status == 201, answer.body
    await scene.create(MANAGED)
    backend = await scene.wait_for("CacheBackend", lambda found: verdicts_of(found).get("RemoteStorageReady"))
    assert verdicts_of(backend)["RemoteStorageReady"] == "False/RemoteStorageUnavailable"
    message = condition_of(backend, "RemoteStorageReady")["message"]
    assert f"Deployment {scene.namespace}/cache" in message
    assert "observedGeneration" not in backend["status"]
    await scene.look_again()
    assert await scene.find("Deployment") == answer.body
    assert await scene.find("Service") is None
    await scene.kube.delete("Deployment", "cache", scene.namespace)
    await scene.wait_verdicts(**PENDING)
    await scene.wait_for("Service")


@rule("CTL-214", "CTL-215", "CTL-216", "CTL-217")
async def test_a_backend_goes_at_once_and_its_successor_begins_anew(scene: BackendScene) -> None:
    await scene.create(MANAGED)
    engine = await scene.run_engine()
    await scene.wait_for("Service")
    await scene.roll_out()
    await scene.observe_event()
    backend = await scene.wait_verdicts(Ready="True/KVEventsObserved")
    assert "finalizers" not in backend["metadata"]
    assert "annotations" not in backend["metadata"]
    pod = await scene.wait_for("Pod", name=engine["metadata"]["name"])
    await scene.kube.delete("CacheBackend", "cache", scene.namespace)
    assert await scene.find("CacheBackend") is None
    await scene.look_again()
    assert await scene.find("Pod", engine["metadata"]["name"]) == pod
    await scene.create(MANAGED)
    backend = await scene.wait_for(
        "CacheBackend", lambda found: verdicts_of(found).get("ConnectorReady", "").startswith("Unknown")
    )
    assert verdicts_of(backend)["ConnectorReady"] == "Unknown/ConnectorInjectionUnverified"
    assert "firstKVEventObservedAt" not in backend["status"]
    # The old Deployment belongs to the life before until the garbage collector takes it.
    assert verdicts_of(backend)["RemoteStorageReady"] == "False/RemoteStorageUnavailable"
    for kind in ("Deployment", "Service"):
        await scene.kube.delete(kind, "cache", scene.namespace)
    await scene.wait_verdicts(**PENDING)
    assert await scene.find("Pod", engine["metadata"]["name"]) == pod


@rule("CTL-139", "CTL-142", "CTL-146", "CTL-211")
async def test_what_kubelets_report_of_engines_reaches_the_backend(scene: BackendScene) -> None:
    await scene.create(pod_local())
    await scene.run_engine()
    await scene.observe_event()
    await scene.wait_verdicts(Ready="True/KVEventsObserved", EngineCompatibility="")
    crashing = {
        "name": "vllm",
        "image": "i",
        "imageID": "i",
        "ready": False,
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    await scene.report("engine", ready=True, containerStatuses=[crashing])
    await scene.wait_verdicts(
        Ready="True/KVEventsObserved", EngineCompatibility="False/InjectedEngineCrashLooping"
    )
    await scene.report("engine", ready=False)
    await scene.wait_verdicts(EngineCompatibility="", ConnectorReady="False/MPServersNotReady")
    await scene.wait_events(("Warning", "InjectedEngineCrashLooping"))


@rule("CTL-120", "CTL-123", "CTL-127", "CTL-226")
async def test_a_probe_goes_through_the_log_and_back(
    operated: KubeClient,
    operated_server: ApiServer,
    operator_token: str,
    operated_namespace: str,
    nats_server: NatsServer,
    plane: DataPlane,
) -> None:
    async with scene_of(
        operated, operated_server, operator_token, nats_server.url, operated_namespace, probing=True
    ) as scene:
        await scene.create(MANAGED)
        await scene.run_engine()
        await scene.wait_for("Service")
        await scene.roll_out()
        await scene.observe_event()
        backend = await scene.wait_verdicts(
            FunctionalProbeOK="Unknown/ProbeError", Ready="True/KVEventsObserved"
        )
        assert condition_of(backend, "FunctionalProbeOK")["message"].startswith("probe call failed: ")
        assert probe_results(scene) == {}
        await plane.owner()
        async with served_over(await plane.follower()):
            await scene.look_again()
            await scene.wait_verdicts(FunctionalProbeOK="True/ProbeOK", Ready="True/KVEventsObserved")
        reference = f"{operated_namespace}/cache"
        assert probe_results(scene) == {
            (reference, "ingest", "ok"): 1,
            (reference, "routing", "ok"): 1,
            (reference, "t2", "skipped"): 1,
        }
        await operated.delete("CacheBackend", "cache", operated_namespace)
        await eventually(lambda: not probe_results(scene), what="the end of its counters")


def probe_results(scene: BackendScene) -> dict[tuple[str, str, str], float]:
    samples = (sample for metric in scene.operation.registry.collect() for sample in metric.samples)
    return {
        (sample.labels["backend"], sample.labels["stage"], sample.labels["result"]): sample.value
        for sample in samples
        if sample.name == "inferencecache_backend_probe_result_total"
    }
