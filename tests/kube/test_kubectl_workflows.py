"""What people do with kubectl, and what it shows them: the journeys of the operations chapter as far as a
cluster without nodes has them. The test plays scheduler, kubelets and engines.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.records import Stats
from inferencecache.v1alpha1.inferencecache_pb2 import CacheStateUpdate, LookupRouteRequest, PrefixEntry
from tests.kube.backend_scene import WITHIN_S, BackendScene, scene_of
from tests.kube.engines import delete_pod, engine_pod, stored_backend
from tests.kube.objects import stored
from tests.support.backends import DOMAIN, REDIS, change, node_local, pod_local
from tests.support.dataplane import DataPlane
from tests.support.engine_pods import PREFIX
from tests.support.kube import ApiServer, Document, KubeClient, new_namespace
from tests.support.kubectl import WAIT_S, Kubectl, KubectlError
from tests.support.live_router import LiveRouter, served_over
from tests.support.nats import NatsServer
from tests.support.operating import operating
from tests.support.resources import document
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
rule = pytest.mark.rule
LOOKUPS_CHANGE_WITHIN_S: Final = 2.0
NO_TICK_S: Final = 3600.0
"""A refresh interval so long that what happens was not a tick's doing."""

MANAGED: Final = change(pod_local(), "spec.remoteStorage", REDIS)
READY: Final = ".status.conditions[?(@.type=='Ready')]"
IDLE_SINCE: Final = f"{PREFIX}node-local-idle-since".replace(".", r"\.")


def placed(backend: Document, namespace: str) -> Document:
    """A backend of the worked cases as somebody's file has it."""
    return backend | {"metadata": {"name": backend["metadata"]["name"], "namespace": namespace}}


@pytest.fixture
def kubectl(operated_server: ApiServer, operated_namespace: str) -> Kubectl:
    """It speaks about the test's own namespace."""
    return Kubectl(operated_server, operated_namespace)


@pytest.fixture
async def router(plane: DataPlane) -> AsyncIterator[LiveRouter]:
    """A router whose index has an owner."""
    await plane.owner()
    async with served_over(await plane.follower()) as router:
        yield router


@rule("CTL-188", "CTL-218")
async def test_lookups_follow_an_applied_policy_within_two_seconds(
    kubectl: Kubectl,
    router: LiveRouter,
    operated_server: ApiServer,
    operator_token: str,
    operated_namespace: str,
    nats_server: NatsServer,
) -> None:
    scope: dict[str, Any] = {"tenant_id": operated_namespace, "model_id": "m", "hash_scheme": "vllm"}

    async def is_answer(reason: str) -> bool:
        answer = await router.stub.LookupRoute(LookupRouteRequest(**scope, prefix_hash=b"p"))
        return bool(answer.reason_code == reason)

    async def apply(least: int) -> None:
        spec = {"minimumMatchedTokens": least, "affinityRouting": "Disabled"}
        await kubectl.apply(document("CachePolicy", f"{operated_namespace}/lookup", spec))

    update = CacheStateUpdate(
        **scope, replica_id="r", prefixes=[PrefixEntry(prefix_hash=b"p", token_count=128)]
    )
    assert (await router.stub.ReportCacheState(iter([update]))).accepted
    async with operating(operated_server, operator_token, nats_server.url, refresh_interval_s=NO_TICK_S):
        await eventually(partial(is_answer, "PREFIX_MATCH"))
        await apply(100)
        await kubectl.wait("cachepolicy/lookup", "condition=Propagated")
        for least, reason in ((129, "NO_HINT"), (128, "PREFIX_MATCH"), (200, "NO_HINT")):
            await apply(least)
            await eventually(
                partial(is_answer, reason), within_s=LOOKUPS_CHANGE_WITHIN_S, what=f"{reason} by {least}"
            )
        await kubectl("delete", "cachepolicy", "lookup")
        await eventually(partial(is_answer, "PREFIX_MATCH"), within_s=LOOKUPS_CHANGE_WITHIN_S)


@rule("CTL-163", "CTL-168", "CTL-183")
async def test_kubectl_shows_the_index_and_its_tenants_as_they_change(
    kubectl: Kubectl,
    plane: DataPlane,
    operated: KubeClient,
    operated_server: ApiServer,
    operator_token: str,
    operated_namespace: str,
    nats_server: NatsServer,
) -> None:
    namespace = operated_namespace
    await plane.owner()
    backend = await stored_backend(operated, namespace, pod_local())
    pod = await stored(operated, engine_pod(namespace, "e1", backend))
    quota = {"tenantID": namespace, "quota": {"maxIndexEntries": 50_000}}
    async with operating(operated_server, operator_token, nats_server.url):
        producer = await plane.producer("e1", tenant=TenantId(namespace), pod_uid=pod["metadata"]["uid"])
        await producer.begin()
        await producer.report(Stats(hit_rate=0.5))
        await kubectl.apply(document("CacheTenant", f"{namespace}/team", quota))
        for first, total in ((1, 8), (101, 16)):
            await producer.store(first, 8)
            await kubectl.wait(
                "cacheindex/cluster-default", f"jsonpath={{.status.prefixes.summary.total}}={total}"
            )
            (row,) = await kubectl.table("cacheindex")
            assert (row["NAME"], row["PREFIXES"]) == ("cluster-default", str(total))
            (row,) = await kubectl.table("cacheindex", "--output=custom-columns=WHO:.status.replicas[*].id")
            assert row == {"WHO": "e1"}
            await kubectl.wait("cachetenant/team", f"jsonpath={{.status.indexEntries}}={total}")
            (row,) = await kubectl.table("cachetenants")
            assert (row["TENANT"], row["ENTRIES"], row["QUOTA"]) == (namespace, str(total), "50000")
        await kubectl("delete", "pod", "e1")
        await kubectl.wait("cacheindex/cluster-default", "jsonpath={.status.prefixes.summary.total}=0")
        assert await kubectl.value("cacheindex/cluster-default", ".status.replicas[*].id") == ""


@pytest.fixture
async def scene(
    operated: KubeClient,
    operated_server: ApiServer,
    operator_token: str,
    operated_namespace: str,
    nats_server: NatsServer,
) -> AsyncIterator[BackendScene]:
    """A whole controller, and others to play."""
    async with scene_of(
        operated,
        operated_server,
        operator_token,
        nats_server.url,
        operated_namespace,
        probing=True,
        whole=True,
    ) as scene:
        yield scene


@rule("CTL-181", "CTL-184")
async def test_a_quota_is_kept_within_its_tenant(
    kubectl: Kubectl,
    plane: DataPlane,
    operated: KubeClient,
    operated_server: ApiServer,
    operator_token: str,
    operated_namespace: str,
    nats_server: NatsServer,
) -> None:
    await plane.owner()
    small, large = operated_namespace, await new_namespace(operated)

    async def is_kept() -> bool:
        """The part of a quota that one partition has may be as little as its share of the partitions."""
        rows = await kubectl.table("cachetenants", "--all-namespaces")
        held = {(row["TENANT"], row["QUOTA"]): int(row["ENTRIES"]) for row in rows}
        return 5 <= held[small, "10"] <= 10 and held[large, "40"] == 16

    async with operating(operated_server, operator_token, nats_server.url):
        for namespace, most in ((small, 10), (large, 40)):
            team = document(
                "CacheTenant",
                f"{namespace}/team",
                {"tenantID": namespace, "quota": {"maxIndexEntries": most}},
            )
            of_team = Kubectl(operated_server, namespace)
            await of_team.apply(team)
            await of_team.wait("cachetenant/team", "condition=Ready")
            producer = await plane.producer(f"engine-of-{namespace}", tenant=TenantId(namespace))
            await producer.begin()
            await producer.store(1, 16)
        await eventually(is_kept, within_s=WITHIN_S)


@asynccontextmanager
async def refused_deployments(kube: KubeClient, namespace: str, message: str) -> AsyncIterator[None]:
    """Meanwhile a policy of the cluster refuses every new Deployment in the namespace."""
    name = f"no-deployments-{namespace}"
    created = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    policy = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [created | {"operations": ["CREATE"]}],
        },
        "validations": [{"expression": "false", "message": message}],
    }
    specs = {
        "ValidatingAdmissionPolicy": policy,
        "ValidatingAdmissionPolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }
    for kind, spec in specs.items():
        made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        await stored(kube, made | {"spec": spec})
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    trial = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "trial", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }

    async def is_in_force() -> bool:
        return message in (await kube.create(trial, dry_run=True)).message

    await eventually(is_in_force, within_s=WITHIN_S)
    try:
        yield
    finally:
        for kind in specs:
            await kube.delete(kind, name)


@pytest.mark.usefixtures("router")
@rule("CTL-101", "CTL-213")
async def test_conditions_explain_at_each_step_why_a_backend_is_not_ready(
    kubectl: Kubectl, plane: DataPlane, scene: BackendScene
) -> None:
    async def explained(reason: str, *, ready: str = "False") -> str:
        """The message of `Ready`, once that is the reason."""
        await kubectl.wait("cachebackend/cache", f"jsonpath={{{READY}.reason}}={reason}")
        assert await kubectl.value("cachebackend/cache", f"{READY}.status") == ready
        return await kubectl.value("cachebackend/cache", f"{READY}.message")

    endpoint = f"cache.{scene.namespace}.svc.cluster.local:6379"
    await kubectl.apply(placed(MANAGED, scene.namespace))
    assert "spec.engineSelector" in await explained("NoEnginePods")
    assert f"{DOMAIN}:engine" in await kubectl.value("cachebackend/cache", ".status.engineSelectorMessage")
    shown = await kubectl("describe", "cachebackend", "cache")
    assert re.search(r"^ +Reason: +NoEnginePods$", shown, re.MULTILINE)
    assert re.search(r"^ +Normal +EngineSelectorUnmatched .+ cachebackend-controller ", shown, re.MULTILINE)
    (row,) = await kubectl.table(
        "cachebackend",
        "--output=custom-columns=READY:.status.conditions[?(@.type=='Ready')].status,REMOTE:.status.remoteStorage.endpoint",
    )
    assert row == {"READY": "False", "REMOTE": endpoint}
    await scene.wait_for("Service")
    await scene.roll_out()
    engine = await scene.run_engine()
    assert "KV event" in await explained("AwaitingFirstKVEvent")
    producer = await plane.producer(
        "engine", tenant=TenantId(scene.namespace), pod_uid=engine["metadata"]["uid"]
    )
    await producer.begin()
    await producer.store(1)
    await kubectl.wait("cachebackend/cache", "condition=Ready")
    await explained("KVEventsObserved", ready="True")
    await scene.roll_out(available=0)  # somebody deletes the pod of the store
    await kubectl.wait("cachebackend/cache", "condition=RemoteStorageReady=false")
    await explained("KVEventsObserved", ready="True")
    external = {"ownership": "External", "endpoint": "redis.example:6379"}
    await kubectl.apply(placed(change(pod_local(), "spec.remoteStorage", REDIS | external), scene.namespace))
    for owned in ("deployment/cache", "service/cache"):
        await kubectl.wait(owned, "delete")
    assert "recreate" in await explained("ConnectorInjectionUnverified", ready="Unknown")
    (row,) = await kubectl.table(
        "cachebackend", "--output=custom-columns=REMOTE:.status.remoteStorage.endpoint"
    )
    assert row == {"REMOTE": "redis.example:6379"}
    shown = await kubectl("describe", "cachebackend", "cache")
    for reason in ("AwaitingFirstKVEvent", "KVEventsObserved", "RemoteStorageUnavailable"):
        assert re.search(rf"^ +\w+ +{reason} ", shown, re.MULTILINE), shown


@rule("CTL-48", "CTL-211")
async def test_why_a_store_was_refused_is_described(
    kubectl: Kubectl, operated: KubeClient, scene: BackendScene
) -> None:
    refusal = "stores need the approval of the platform's team"
    async with refused_deployments(operated, scene.namespace, refusal):
        await kubectl.apply(placed(MANAGED, scene.namespace))
        await scene.wait_events(("Warning", "RemoteStorageUnavailable"))
        shown = await kubectl("describe", "cachebackend", "cache")
        assert re.search(rf"^ +Warning +RemoteStorageUnavailable .+{refusal}", shown, re.MULTILINE)
    await kubectl.wait("cachebackend/cache", "condition=RemoteStorageReady=unknown")


@rule("CTL-38")
async def test_the_store_of_the_production_recipe_keeps_a_fifth_of_its_memory_free(
    kubectl: Kubectl, scene: BackendScene
) -> None:
    resources = {"requests": {"memory": "16Gi"}, "limits": {"memory": "24Gi"}}
    recipe = change(MANAGED, "spec.remoteStorage.redis", {"resources": resources})
    await kubectl.apply(placed(recipe, scene.namespace))
    await kubectl.wait("deployment/cache", "create")
    arguments = await kubectl.value("deployment/cache", ".spec.template.spec.containers[0].args")
    assert "--maxmemory 20615843021 --maxmemory-policy allkeys-lru" in " ".join(json.loads(arguments))


@rule("CTL-70")
async def test_a_node_local_backend_has_a_server_where_engines_are_and_none_before(
    kubectl: Kubectl, operated: KubeClient, scene: BackendScene
) -> None:
    async def servers() -> list[str]:
        return (
            await kubectl("get", "pods", "--selector", f"{PREFIX}lmcache-node-server", "--output=name")
        ).split()

    await kubectl.apply(placed(node_local(), scene.namespace))
    await kubectl.wait("cachebackend/cache", f"jsonpath={{{READY}.reason}}=NoEnginePods")
    assert await kubectl("get", "pods,services,deployments", "--output=name") == ""
    backend = await scene.backend()
    engine = await stored(operated, engine_pod(scene.namespace, "engine", backend, node="node-a"))
    await kubectl.wait("cachebackend/cache", f"jsonpath={{{READY}.reason}}=NodeLocalServerPoolPending")
    (server,) = await servers()
    ports = await kubectl.value(server, ".spec.containers[*].ports[*].containerPort")
    assert ports.split() == ["6555", "18080"]
    assert (await scene.wait_for("Pod", name="engine"))["spec"] == engine["spec"]
    await delete_pod(operated, engine)
    await kubectl.wait(server, f"jsonpath={{.metadata.annotations.{IDLE_SINCE}}}")
    assert await servers() == [server]


@rule("CTL-215", "CTL-214")
async def test_a_deleted_backend_takes_its_store_along_and_leaves_its_engines(
    kubectl: Kubectl, operated_server: ApiServer, scene: BackendScene
) -> None:
    await kubectl.apply(placed(MANAGED, scene.namespace))
    await kubectl.wait("service/cache", "create")
    await scene.run_engine()
    with operated_server.collecting():
        await kubectl("delete", "cachebackend", "cache")
        for owned in ("deployment/cache", "service/cache"):
            await kubectl.wait(owned, "delete")
    assert await kubectl("get", "pods,deployments,services,cachebackends", "--output=name") == "pod/engine\n"


@rule("CTL-214", "CTL-218")
async def test_a_deleted_namespace_goes_with_everything_in_it(
    kubectl: Kubectl,
    plane: DataPlane,
    router: LiveRouter,
    operated: KubeClient,
    operated_server: ApiServer,
    scene: BackendScene,
) -> None:
    namespace, tenant = scene.namespace, TenantId(scene.namespace)
    others = await new_namespace(operated)
    pools = {
        f"{phase}Pools": [{"name": phase, "matchLabels": {"phase": phase}}] for phase in ("prefill", "decode")
    }
    await kubectl.apply(
        placed(MANAGED, namespace),
        placed(node_local(name="on-nodes", domain="other"), namespace),
        document("CachePolicy", f"{namespace}/lookup", {"minimumMatchedTokens": 200}),
        document("CacheTenant", f"{namespace}/team", {"tenantID": namespace}),
        document("PromptTemplate", f"{namespace}/greeting", {"body": "Hello"}),
        document("PDTopology", f"{namespace}/pair", {"transport": "NIXL", **pools}),
    )
    await stored(operated, document("CachePolicy", f"{others}/lookup", {"minimumMatchedTokens": 200}))
    await kubectl.wait("service/cache", "create")
    engine = await scene.run_engine()
    producer = await plane.producer("engine", tenant=tenant, pod_uid=engine["metadata"]["uid"])
    await producer.begin()
    await producer.store(1)
    for kind in ("cachepolicy/lookup", "prompttemplate/greeting", "pdtopology/pair"):
        await kubectl.wait(kind, "condition=Propagated")
    await kubectl.wait("cacheindex/cluster-default", "jsonpath={.status.prefixes.summary.total}=8")
    with operated_server.collecting():
        await kubectl("delete", "namespace", namespace, f"--timeout={WAIT_S}s")
    with pytest.raises(KubectlError, match="NotFound"):
        await kubectl("get", "namespace", namespace)
    await kubectl.wait("cacheindex/cluster-default", "jsonpath={.status.prefixes.summary.total}=0")
    await eventually(lambda: router.following.policy(tenant) is None, within_s=WITHIN_S)
    assert router.following.policy(TenantId(others)) is not None
    writes = scene.writes()
    await scene.look_again()
    assert scene.writes() == writes
