"""What pods meet at an API server that asks the webhook, beyond the worked cases."""

from __future__ import annotations

import pytest

from inferencecache.controller.injection import SidecarSettings
from inferencecache.controller.injection.node_server import node_server_pod
from inferencecache.core.kube.backends import Backend
from tests.kube.pods import OBSERVED, store_backend
from tests.support.backends import DOMAIN, change, events_only, hi_cache, node_local, pod_local
from tests.support.engine_pods import (
    MARKS,
    PREFIX,
    SOURCES,
    engine_of,
    engine_pod,
    pod_v,
    with_init,
)
from tests.support.kube import ApiServer, Document, KubeClient, new_namespace
from tests.support.webhooks import ServedWebhooks, registered_at

pytestmark = pytest.mark.kube

INJECTED_BY = f"{PREFIX}injected-by"
STRICT = {f"{PREFIX}lmcache-kernel-check": "strict"}
PROFILES = {
    "vllm-pod": pod_local(),
    "vllm-node": node_local(),
    "vllm-observed": events_only(),
    "sglang-pod": pod_local("SGLang"),
    "sglang-node": node_local("SGLang"),
    "sglang-observed": events_only("SGLang"),
    "sglang-hicache": hi_cache(),
}


def annotations_of(pod: Document) -> Document:
    annotations: Document = pod["metadata"].get("annotations", {})
    return annotations


@pytest.mark.rule("ADM-W39", "ADM-240")
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_stored_pod_comes_out_unchanged_when_it_is_created_again(
    profile: str, webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = OBSERVED
    backend = change(PROFILES[profile], "spec.observation", {"modelID": "m"})
    backend = change(backend, "metadata.annotations", STRICT)
    overrides = {"args": ["--kv-events-config={}"], "env": [{"name": "LATER", "value": "1"}]}
    backend = change(backend, "spec.integration.engineOverrides", overrides)
    await store_backend(webhooks, guarded, guarded_namespace, backend)
    pod = with_init(engine_pod("--page-size=64", name=profile.partition("-")[0]), "own")
    first = await guarded.create(change(pod, "metadata.namespace", guarded_namespace))
    assert INJECTED_BY in annotations_of(first.body), first
    kept = {key: first.body["metadata"][key] for key in ("labels", "annotations")}
    again = {"apiVersion": "v1", "kind": "Pod", "spec": first.body["spec"]}
    again["metadata"] = {"name": "again", "namespace": guarded_namespace} | kept
    second = await guarded.create(again)
    assert second.status == 201, second
    assert second.body["spec"] == first.body["spec"]
    assert {key: second.body["metadata"][key] for key in kept} == kept


@pytest.mark.rule("ADM-126")
async def test_later_changes_of_pod_and_backend_leave_a_pod_as_it_was_wired(
    webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = SidecarSettings()
    backend = await store_backend(webhooks, guarded, guarded_namespace, pod_local())
    unmatched = change(pod_v(), "metadata.labels", {"app": "x"})
    placed = change(unmatched, "metadata.namespace", guarded_namespace)
    assert (await guarded.create(placed)).status == 201
    label = {"metadata": {"labels": {DOMAIN: "engine"}}}
    late = await guarded.patch("Pod", "engine", guarded_namespace, label)
    assert late.status == 200
    assert "initContainers" not in late.body["spec"]
    assert annotations_of(late.body) == {}

    matched = change(
        placed, "metadata", {"name": "matched", "namespace": guarded_namespace} | label["metadata"]
    )
    before = await guarded.create(matched)
    newer = change(backend, "spec.lmCache.podLocal.server.port", 6501)
    assert (await guarded.replace(newer)).status == 200
    after = await guarded.get("Pod", "matched", guarded_namespace)
    assert after.body["spec"] == before.body["spec"]


@pytest.mark.rule("ADM-06")
async def test_a_pod_is_wired_by_a_backend_of_a_moment_ago(
    webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = SidecarSettings()
    for number in range(5):
        backend = pod_local(name=f"b{number}", domain=f"d{number}")
        await store_backend(webhooks, guarded, guarded_namespace, backend)
        pod = change(pod_v(), "metadata", {"name": f"p{number}", "namespace": guarded_namespace})
        answer = await guarded.create(change(pod, "metadata.labels", {DOMAIN: f"d{number}"}))
        assert annotations_of(answer.body)[INJECTED_BY] == f"{guarded_namespace}/b{number}"
        assert (await guarded.delete("CacheBackend", f"b{number}", guarded_namespace)).status == 200
        gone = change(answer.body, "metadata", {"name": f"q{number}", "namespace": guarded_namespace})
        answer = await guarded.create(change(gone, "metadata.labels", {DOMAIN: f"d{number}"}))
        assert annotations_of(answer.body) == {}


@pytest.mark.rule("ADM-127", "ADM-02")
async def test_a_generated_name_and_a_dry_run_are_judged_like_others(
    webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = OBSERVED
    backend = change(pod_local(), "spec.observation", {"modelID": "m"})
    await store_backend(webhooks, guarded, guarded_namespace, backend)
    pod = change(pod_v(), "metadata", {"generateName": "engine-", "labels": {DOMAIN: "engine"}})
    path = f"/api/v1/namespaces/{guarded_namespace}/pods"
    for query in ({}, {"dryRun": "All"}):
        answer = await guarded.call("POST", path, pod, query=query)
        assert answer.status == 201, answer
        assert answer.body["metadata"]["namespace"] == guarded_namespace
        assert annotations_of(answer.body)[INJECTED_BY] == f"{guarded_namespace}/cache"
        (_, sidecar) = answer.body["spec"]["containers"]
        assert "--replica-id=$(POD_NAME)" in sidecar["args"]


@pytest.mark.rule("ADM-244", "ADM-13")
async def test_a_stored_backend_that_cannot_be_read_harms_only_its_own_pods(
    webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = SidecarSettings()
    broken = change(pod_local(name="broken", domain="other"), "spec.observation.firstEventTimeout", "soon")
    await store_backend(webhooks, guarded, guarded_namespace, broken)
    await store_backend(webhooks, guarded, guarded_namespace, pod_local())
    placed = change(pod_v(), "metadata.namespace", guarded_namespace)
    assert INJECTED_BY in annotations_of((await guarded.create(placed)).body)
    own = change(change(placed, "metadata.name", "own"), "metadata.labels", {DOMAIN: "other"})
    answer = await guarded.create(own)
    assert (answer.status, annotations_of(answer.body)) == (201, {})


@pytest.mark.rule("ADM-155", "ADM-257")
async def test_a_pod_that_cannot_be_wired_is_stored_without_marks(
    webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    await store_backend(webhooks, guarded, guarded_namespace, pod_local())
    pod = change(pod_v("-tp", "none"), "metadata.annotations", dict(MARKS) | {"own": "kept"})
    answer = await guarded.create(change(pod, "metadata.namespace", guarded_namespace))
    assert (answer.status, annotations_of(answer.body)) == (201, {"own": "kept"})
    assert engine_of(answer.body)["args"] == engine_of(pod)["args"]


SERVER = "spec.lmCache.podLocal.server"
RESOURCES = {"requests": {"memory": "6Gi"}, "limits": {"memory": "5Gi"}}


@pytest.mark.rule("ADM-250")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{SERVER}.image", " "),
        (f"{SERVER}.resources", RESOURCES),
        (f"{SERVER}.resources", {"claims": [{"name": "c"}]}),
        ("spec.integration.engineOverrides", {"env": [{"name": "1 A"}]}),
        ("spec.remoteStorage.redis.authentication", {"password": {"key": "k"}}),
    ],
    ids=str,
)
async def test_a_backend_that_bypassed_admission_never_keeps_a_pod_out(
    path: str, value: object, webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = OBSERVED
    store = {"provider": "Redis", "ownership": "External", "endpoint": "r:6379"}
    backend = change(change(pod_local(), "spec.remoteStorage", store), path, value)
    await store_backend(webhooks, guarded, guarded_namespace, backend)
    answer = await guarded.create(change(pod_v(), "metadata.namespace", guarded_namespace))
    assert answer.status == 201, answer
    assert INJECTED_BY not in annotations_of(answer.body)


@pytest.mark.rule("ADM-188", "ADM-204", "ADM-224")
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("containers", "lmcache-mp-server"),
        ("containers", "lmcache-kernel-check"),
        ("initContainers", "kvevent-subscriber"),
        ("initContainers", "lmcache-mp-server"),
    ],
)
async def test_a_name_that_is_taken_never_keeps_a_pod_out(
    key: str, name: str, webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = OBSERVED
    backend = change(pod_local(), "spec.observation", {"modelID": "m"})
    backend = change(backend, "metadata.annotations", STRICT)
    await store_backend(webhooks, guarded, guarded_namespace, backend)
    pod = pod_v()
    pod["spec"].setdefault(key, []).append({"name": name, "image": "own:1"})
    answer = await guarded.create(change(pod, "metadata.namespace", guarded_namespace))
    assert answer.status == 201, answer


@pytest.mark.rule("ADM-225")
async def test_a_port_of_the_engine_on_the_hosts_network_never_keeps_a_pod_out(
    webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    webhooks.sidecar = OBSERVED
    await store_backend(webhooks, guarded, guarded_namespace, events_only())
    pod = change(pod_v(ports=[{"containerPort": 8082}]), "spec.hostNetwork", value=True)
    answer = await guarded.create(change(pod, "metadata.namespace", guarded_namespace))
    assert answer.status == 201, answer
    assert [c["name"] for c in answer.body["spec"]["containers"]] == ["vllm", "kvevent-subscriber"]


@pytest.mark.rule("ADM-250")
@pytest.mark.parametrize(
    ("field", "value", "is_wired"),
    [
        ("os", {"name": "windows"}, False),
        ("resources", {"requests": {"cpu": "1", "memory": "1Gi"}}, False),
        ("resources", {"limits": {"cpu": "8", "memory": "5Gi"}}, False),
        ("resources", {"requests": {"cpu": "1010m", "memory": "5184Mi"}}, True),
        ("resources", {"limits": {"cpu": "8", "memory": "20Gi"}}, True),
    ],
    ids=str,
)
async def test_what_does_not_fit_into_a_pod_never_keeps_it_out(
    field: str,
    value: Document,
    is_wired: bool,
    webhooks: ServedWebhooks,
    guarded: KubeClient,
    guarded_namespace: str,
) -> None:
    webhooks.sidecar = OBSERVED
    backend = change(pod_local(), "spec.observation", {"modelID": "m"})
    await store_backend(webhooks, guarded, guarded_namespace, backend)
    pod = change(change(pod_v(), f"spec.{field}", value), "metadata.namespace", guarded_namespace)
    answer = await guarded.create(pod)
    assert answer.status == 201, answer
    assert (INJECTED_BY in annotations_of(answer.body)) is is_wired


@pytest.mark.rule("ADM-250", "ADM-213")
@pytest.mark.parametrize(("source", "is_taken"), SOURCES, ids=str)
async def test_a_source_of_an_override_is_judged_as_the_server_judges_it(
    source: Document, is_taken: bool, webhooks: ServedWebhooks, guarded: KubeClient, guarded_namespace: str
) -> None:
    variable = {"name": "A", "valueFrom": source}
    own = change(pod_v(env=[variable]), "metadata", {"name": "own", "namespace": guarded_namespace})
    assert (await guarded.create(own)).status == (201 if is_taken else 422)

    webhooks.sidecar = SidecarSettings()
    backend = change(pod_local(), "spec.integration.engineOverrides", {"env": [variable]})
    await store_backend(webhooks, guarded, guarded_namespace, backend)
    answer = await guarded.create(change(pod_v(), "metadata.namespace", guarded_namespace))
    assert answer.status == 201, answer
    assert (INJECTED_BY in annotations_of(answer.body)) is is_taken


@pytest.mark.rule("ADM-263", "ADM-266", "ADM-269")
async def test_the_servers_pod_of_a_node_is_one_that_the_api_takes(
    guarded: KubeClient, guarded_namespace: str
) -> None:
    backend = change(node_local(), "metadata.namespace", guarded_namespace)
    scheduling = {"tolerations": [{"operator": "Exists"}], "securityContext": {"fsGroup": 1}}
    backend = change(backend, "spec.lmCache.nodeLocal.scheduling", scheduling)
    engine = change(pod_v(), "spec.nodeName", "gpu-1")
    pod = node_server_pod(Backend(backend), engine, None)
    answer = await guarded.create(pod, strict=True)
    assert answer.status == 201, answer
    assert answer.body["spec"]["affinity"] == pod["spec"]["affinity"]


@pytest.mark.rule("ADM-255", "ADM-147")
async def test_without_anybody_behind_the_address_pods_come_in_untouched(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """One server of its own, whose webhooks are registered at a port that nobody listens on."""
    with ApiServer(tmp_path_factory.mktemp("alone")) as server:
        async with KubeClient(server) as kube:
            (mutating, _) = registered_at(1)
            assert (await kube.create(mutating, strict=True)).status == 201
            namespace = await new_namespace(kube)
            pod = change(pod_v(), "metadata.namespace", namespace)
            forged = change(pod, "metadata.annotations", dict(MARKS))
            answer = await kube.create(forged)
            assert (answer.status, annotations_of(answer.body)) == (201, MARKS)
