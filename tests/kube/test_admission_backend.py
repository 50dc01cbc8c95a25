"""CacheBackends through an API server that asks the webhooks: the worked cases about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kube.admitting import accepted, denied, refused, refused_by_schema, tried
from tests.support.backends import DOMAIN, REDIS, Document, events_only, hi_cache, node_local, pod_local
from tests.support.judging import DOMAIN_PATH, NODE_SERVER, SERVER, changed
from tests.support.kube import KubeClient, new_namespace
from tests.support.webhooks import ServedWebhooks

pytestmark = pytest.mark.kube
rule = pytest.mark.rule

JUDGE = "vcachebackend"
STORAGE = "spec.remoteStorage"
ENDPOINT = f"{STORAGE}.endpoint"
OVERRIDES = "spec.integration.engineOverrides"
EXTERNAL = {"provider": "Redis", "ownership": "External"}
KERNEL_CHECK = "inferencecache.io/lmcache-kernel-check"
GPU = "nvidia.com/gpu"
REQUIRED, FORBIDDEN = "Required value", "Forbidden"


def invalid(value: object) -> str:
    return f"Invalid value: {json.dumps(value)}"


class Backends:
    """Tries backends in a namespace of the test's own."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def made(self, make: Any, changes: Document | None = None, **identity: str) -> Document:
        return changed(make(namespace=self.namespace, **identity), changes or {})

    async def accepts(self, make: Any, changes: Document | None = None) -> Document:
        """Nothing is stored: cases do not meet each other."""
        return accepted(await tried(self.client, self.made(make, changes)))

    async def refuses(self, make: Any, changes: Document, *expected: tuple[str, str]) -> list[str]:
        return refused(await tried(self.client, self.made(make, changes)), JUDGE, *expected)

    async def stored(self, make: Any, changes: Document | None = None, **identity: str) -> Document:
        return accepted(await self.client.create(self.made(make, changes, **identity)))

    async def label(self, name: str = "cache") -> Any:
        """An update that touches metadata only."""
        change = {"metadata": {"labels": {"touched": "yes"}}}
        return await self.client.patch("CacheBackend", name, self.namespace, change)

    async def patch(self, spec: Document, name: str = "cache") -> Any:
        return await self.client.patch("CacheBackend", name, self.namespace, {"spec": spec})


@pytest.fixture
def backends(guarded: KubeClient, guarded_namespace: str) -> Backends:
    return Backends(guarded, guarded_namespace)


@rule("ADM-W1", "ADM-10", "ADM-17", "ADM-18", "ADM-20", "CRD-09")
async def test_valid_backends_are_stored_with_their_defaults(backends: Backends) -> None:
    integration = {"mode": "Offload", "role": "ReadWrite", "failOpen": True}
    for make in (pod_local, node_local, hi_cache, events_only):
        name = make.__name__.replace("_", "-")
        sent = make()["spec"]
        stored = await backends.stored(make, name=name, domain=name)
        sent["engineSelector"]["matchLabels"][DOMAIN] = name
        sent["observation"] = {"firstEventTimeout": "5m"} | sent.get("observation", {})
        sent["integration"] = integration | sent.get("integration", {})
        if make is node_local:
            sent["lmCache"]["nodeLocal"]["idleRetentionSeconds"] = 300
        assert stored["spec"] == sent


@rule("ADM-19")
async def test_written_values_stay_through_the_server(backends: Backends) -> None:
    written = {"spec.integration": {"failOpen": False}, "spec.observation": {"firstEventTimeout": "0s"}}
    spec = (await backends.accepts(pod_local, written))["spec"]
    assert spec["integration"]["failOpen"] is False
    assert spec["observation"] == {"firstEventTimeout": "0s"}


@rule("CRD-22")
async def test_a_backend_without_a_spec_is_refused_at_its_runtime(backends: Backends) -> None:
    bare = backends.made(pod_local, {"spec": None})
    refused_by_schema(await tried(backends.client, bare), "spec.runtime")


@rule("ADM-W2", "ADM-47")
async def test_w2_images_are_pinned_by_digest(backends: Backends) -> None:
    for image in ("registry.example.com/lmcache:latest", f"@sha256:{'a' * 64}", f"r@sha256:{'A' * 64}"):
        path = f"{SERVER}.image"
        await backends.refuses(pod_local, {path: image}, (path, invalid(image)))


@rule("ADM-W3", "ADM-49")
async def test_w3_ports_within_the_pod_are_not_taken_twice(backends: Backends) -> None:
    path = f"{SERVER}.port"
    for port in (5557, 8080):
        await backends.refuses(pod_local, {path: port}, (path, invalid(port)))
    await backends.accepts(pod_local, {path: 5558})
    await backends.accepts(node_local, {f"{NODE_SERVER}.port": 5557, f"{NODE_SERVER}.httpPort": 8080})


@rule("ADM-W4", "ADM-55", "ADM-56")
async def test_w4_a_limit_below_request_and_budget_is_told_twice(backends: Backends) -> None:
    field = f"{SERVER}.resources.limits[memory]"
    changes = {f"{SERVER}.resources.limits": {"memory": "4Gi"}}
    below_request, below_budget = await backends.refuses(
        pod_local, changes, (field, invalid("4Gi")), (field, invalid("4Gi"))
    )
    assert "request" in below_request
    assert "l1Capacity and 1Gi" in below_budget


@rule("ADM-W5", "ADM-53")
async def test_w5_a_request_covers_the_cache_and_one_gibibyte(backends: Backends) -> None:
    changes = {f"{SERVER}.resources.requests.memory": "4Gi"}
    await backends.refuses(pod_local, changes, (f"{SERVER}.resources.requests[memory]", invalid("4Gi")))


@rule("ADM-W6", "ADM-58", "ADM-44", "ADM-59")
async def test_w6_a_shared_server_has_two_ports_a_domain_and_no_gpu(backends: Backends) -> None:
    path = f"{NODE_SERVER}.httpPort"
    (detail,) = await backends.refuses(node_local, {path: 6555}, (path, invalid(6555)))
    assert detail == "must differ from port"
    selector = "spec.engineSelector"
    await backends.refuses(node_local, {selector: None}, (f"{selector}.matchLabels", REQUIRED))
    with_gpu = {
        "requests": {"cpu": "1", "memory": "5Gi", "nvidia.com/gpu": 1},
        "limits": {"memory": "5Gi", "nvidia.com/gpu": 1},
    }
    gpus = [(f"{NODE_SERVER}.resources.{side}[nvidia.com/gpu]", FORBIDDEN) for side in with_gpu]
    await backends.refuses(node_local, {f"{NODE_SERVER}.resources": with_gpu}, *gpus)


@rule("ADM-W7", "ADM-41", "ADM-97")
async def test_w7_what_bypassed_the_schema_is_judged_all_the_same(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    sent = backends.made(pod_local, {"spec.lmCache.topology": None})
    refused_by_schema(await tried(backends.client, sent), "spec.lmCache.topology")
    response = await webhooks.ask("/validate-inferencecache-io-v1alpha1-cachebackend", sent)
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert [(cause["field"], cause["reason"]) for cause in response["status"]["details"]["causes"]] == [
        ("spec.lmCache.topology", "FieldValueRequired"),
        ("spec.runtime", "FieldValueInvalid"),
    ]


@rule("ADM-W8", "ADM-39", "ADM-81")
async def test_w8_events_only_has_no_cache_and_no_store(backends: Backends) -> None:
    lm_cache = pod_local()["spec"]["lmCache"]
    await backends.refuses(events_only, {"spec.lmCache": lm_cache}, ("spec.lmCache", FORBIDDEN))
    await backends.refuses(events_only, {STORAGE: REDIS}, (STORAGE, FORBIDDEN))


@rule("ADM-W9", "ADM-23", "ADM-24", "ADM-25")
async def test_w9_a_selector_is_one_domain(backends: Backends) -> None:
    selector = "spec.engineSelector.matchLabels"
    await backends.refuses(pod_local, {selector: {"app": "x"}}, (DOMAIN_PATH, REQUIRED))
    await backends.refuses(pod_local, {selector: {DOMAIN: "d", "app": "x"}}, (selector, FORBIDDEN))
    await backends.refuses(pod_local, {selector: {DOMAIN: "Qwen/Qwen"}}, (DOMAIN_PATH, invalid("Qwen/Qwen")))


@rule("ADM-W10", "ADM-26")
async def test_w10_a_stored_selector_is_judged_at_every_update(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        await backends.stored(pod_local, {"spec.engineSelector.matchLabels": {"app": "x"}})
    refused(await backends.label(), JUDGE, (DOMAIN_PATH, REQUIRED))
    sole = {"engineSelector": {"matchLabels": {"app": None, DOMAIN: "d"}}}
    accepted(await backends.patch(sole))


@rule("ADM-W11", "ADM-11")
async def test_w11_an_update_is_refused_for_what_it_introduces(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        storage = REDIS | {"redis": {"database": 1}}
        await backends.stored(pod_local, {STORAGE: storage, f"{SERVER}.image": "x:1"})
    accepted(await backends.label())
    accepted(await backends.patch({"remoteStorage": {"redis": {"database": 2}}}))
    image = {"lmCache": {"podLocal": {"server": {"image": "x:2"}}}}
    refused(await backends.patch(image), JUDGE, (f"{SERVER}.image", invalid("x:2")))
    tls = {"remoteStorage": {"redis": {"tls": {"caCertificate": {"name": "n", "key": "k"}}}}}
    refused(await backends.patch(tls), JUDGE, (f"{STORAGE}.redis.tls", FORBIDDEN))


@rule("ADM-W12", "ADM-113", "ADM-114", "ADM-04")
async def test_w12_a_domain_has_one_owner_in_a_namespace(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    await backends.stored(pod_local, name="first", domain="d")
    second = backends.made(pod_local, name="second", domain="d")
    (detail,) = refused(await backends.client.create(second), JUDGE, (DOMAIN_PATH, FORBIDDEN))
    assert all(word in detail for word in ("'d'", "first", backends.namespace))
    accepted(await backends.label("first"))
    with webhooks.asleep():
        accepted(await backends.client.create(second))
    for name in ("first", "second"):
        refused(await backends.label(name), JUDGE, (DOMAIN_PATH, FORBIDDEN))
    elsewhere = await new_namespace(backends.client)
    accepted(await backends.client.create(pod_local(namespace=elsewhere, domain="d")))
    accepted(await backends.client.delete("CacheBackend", "second", backends.namespace))
    accepted(await backends.label("first"))


@rule("ADM-W13", "ADM-68", "ADM-69")
async def test_w13_a_store_of_another_namespace_needs_the_opt_in(backends: Backends) -> None:
    for endpoint in (
        "redis.team-b.svc:6379",
        "redis-0.redis.team-b.svc.cluster.local.:6379",
        "REDIS.TEAM-B.SVC:6379",
    ):
        changes = {STORAGE: EXTERNAL | {"endpoint": endpoint}}
        (detail,) = await backends.refuses(pod_local, changes, (ENDPOINT, FORBIDDEN))
        assert all(w in detail for w in ("team-b", backends.namespace, "spec.allowCrossNamespace"))
        allowed = await backends.accepts(pod_local, changes | {"spec.allowCrossNamespace": True})
        assert allowed["spec"]["remoteStorage"]["endpoint"] == endpoint


@rule("ADM-W14", "ADM-70")
async def test_w14_other_addresses_name_no_namespace(backends: Backends) -> None:
    for endpoint in (
        f"redis.{backends.namespace}.svc:6379",
        "redis.team-b:6379",
        "redis.team-b.svc.example.com:6379",
        "10.0.0.9:6379",
    ):
        await backends.accepts(pod_local, {STORAGE: EXTERNAL | {"endpoint": endpoint}})


@rule("ADM-W15", "ADM-38", "ADM-32")
async def test_w15_an_endpoint_is_host_and_port_and_stays_as_written(backends: Backends) -> None:
    for endpoint in ("redis://r:6379", "r", "r:0", "r:70000", "r :6379", "::1:6379", ":6379"):
        changes = {STORAGE: EXTERNAL | {"endpoint": endpoint}}
        await backends.refuses(pod_local, changes, (ENDPOINT, invalid(endpoint)))
    for endpoint in ("  r.example:6379  ", "[::1]:6379"):
        stored = await backends.accepts(pod_local, {STORAGE: EXTERNAL | {"endpoint": endpoint}})
        assert stored["spec"]["remoteStorage"]["endpoint"] == endpoint


@rule("ADM-W16", "ADM-62", "ADM-63", "ADM-64", "ADM-65")
async def test_w16_credentials_name_a_key_of_a_secret(backends: Backends) -> None:
    root = f"{STORAGE}.redis.authentication"
    secret = {"name": "s", "key": "k"}

    def having(**selectors: Document) -> Document:
        return {STORAGE: REDIS | {"redis": {"authentication": selectors}}}

    await backends.refuses(
        pod_local, having(password=secret, username=secret), (f"{root}.username", FORBIDDEN)
    )
    empty = backends.made(pod_local, having(password={}))
    refused_by_schema(await tried(backends.client, empty), f"{root}.password.key")
    await backends.refuses(
        pod_local,
        having(password={"key": " "}),
        (f"{root}.password.name", REQUIRED),
        (f"{root}.password.key", REQUIRED),
    )
    optional = having(password=secret | {"optional": True})
    await backends.refuses(pod_local, optional, (f"{root}.password.optional", FORBIDDEN))


def _alike(name: str, amount: object) -> Document:
    return {"requests": {name: amount}, "limits": {name: amount}}


@rule("ADM-W17", "ADM-71", "ADM-72", "ADM-73", "ADM-75", "ADM-76", "ADM-78")
@pytest.mark.parametrize(
    ("resources", "sides", "word"),
    [
        ({"requests": {GPU: 1}, "limits": {GPU: 2}}, ["limits"], "equal"),
        ({"requests": {"hugepages-2Mi": "2Mi"}}, ["requests"], "in limits"),
        (_alike("hugepages-2Mi", "3Mi"), ["requests", "limits"], "multiple"),
        (_alike("foo", 1), ["requests", "limits"], "no resource"),
        (_alike("kubernetes.io/x", 1), ["requests", "limits"], "no resource"),
        (_alike("memory", "-1Gi"), ["requests", "limits"], "negative"),
        ({"requests": {"memory": 0}, "limits": {"memory": "8Gi"}}, [], ""),
        ({"limits": {GPU: 1}}, [], ""),
    ],
)
async def test_w17_the_resources_of_redis_are_a_pods(
    backends: Backends, resources: Document, sides: list[str], word: str
) -> None:
    changes = {STORAGE: REDIS | {"redis": {"resources": resources}}}
    if not sides:
        await backends.accepts(pod_local, changes)
        return
    expected = [
        (f"{STORAGE}.redis.resources.{side}[{name}]", invalid(amount))
        for side in sides
        for name, amount in resources[side].items()
    ]
    for detail in await backends.refuses(pod_local, changes, *expected):
        assert word in detail


@rule("ADM-W18", "ADM-85", "ADM-86", "ADM-88", "ADM-90", "ADM-97", "ADM-99")
async def test_w18_hi_cache_has_one_size_sglang_and_no_store(backends: Backends) -> None:
    for ratio in ("NaN", "0"):
        path = "spec.hiCache.ratio"
        await backends.refuses(hi_cache, {path: ratio}, (path, invalid(ratio)))
    both = {"ratio": "2", "sizeGB": 8}
    answer = await tried(backends.client, backends.made(hi_cache, {"spec.hiCache": both}))
    assert [(cause[1], cause[0]) for cause in answer.causes] == [("spec.hiCache", "FieldValueInvalid")]
    await backends.refuses(hi_cache, {"spec.hiCache": {}}, ("spec.hiCache", REQUIRED))
    await backends.refuses(hi_cache, {STORAGE: REDIS}, (f"{STORAGE}.provider", invalid("Redis")))
    runtime = ("spec.runtime", invalid("VLLM"))
    _, pairs = await backends.refuses(hi_cache, {"spec.runtime": "VLLM"}, runtime, runtime)
    assert "sglang/LMCache, sglang/SGLangHiCache, vllm/LMCache" in pairs


@rule("ADM-W19", "ADM-95")
async def test_w19_the_kernel_check_annotation_is_one_of_its_words(backends: Backends) -> None:
    changes = {"metadata.annotations": {KERNEL_CHECK: "strcit"}}
    await backends.refuses(pod_local, changes, (f"metadata.annotations[{KERNEL_CHECK}]", invalid("strcit")))
    await backends.accepts(pod_local, {"metadata.annotations": {KERNEL_CHECK: "strict"}})


@rule("ADM-W20", "ADM-102", "ADM-103", "ADM-105", "ADM-108")
async def test_w20_overrides_leave_what_the_adapter_sets(backends: Backends) -> None:
    args = {OVERRIDES: {"args": ["--kv-transfer-config=alt"]}}
    (detail,) = await backends.refuses(pod_local, args, (f"{OVERRIDES}.args[0]", FORBIDDEN))
    assert "--kv-transfer-config" in detail
    suppressed = {OVERRIDES: {"suppressEnv": ["PYTHONHASHSEED"]}}
    await backends.refuses(pod_local, suppressed, (f"{OVERRIDES}.suppressEnv[0]", FORBIDDEN))
    await backends.accepts(pod_local, {OVERRIDES: {"args": ["free-text"]}})
    await backends.accepts(
        pod_local, {"spec.runtime": "SGLang", OVERRIDES: {"env": [{"name": "PYTHONHASHSEED"}]}}
    )
    two = {"name": "A", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    answer = await tried(backends.client, backends.made(pod_local, {OVERRIDES: {"env": [two]}}))
    assert [(cause[1], cause[0]) for cause in answer.causes] == [(f"{OVERRIDES}.env[0]", "FieldValueInvalid")]
    none = {OVERRIDES: {"env": [{"name": "A", "valueFrom": {}}]}}
    await backends.refuses(pod_local, none, (f"{OVERRIDES}.env[0].valueFrom", REQUIRED))


@rule("ADM-13", "CRD-13", "CRD-170")
async def test_what_cannot_be_read_is_denied_by_the_first_webhook(backends: Backends) -> None:
    for path, value in (
        ("spec.observation.firstEventTimeout", "1d"),
        (f"{SERVER}.maxWorkers", 3_000_000_000),
        (f"{SERVER}.l1Capacity", "4 Gi"),
    ):
        answer = await tried(backends.client, backends.made(pod_local, {path: value}))
        denied(answer, 400, "BadRequest", webhook="mcachebackend", message=path)


@rule("ADM-13", "ADM-19")
@pytest.mark.parametrize(
    ("path", "value"),
    [(f"{SERVER}.port", "6500"), ("spec", ""), ("spec.observation", []), ("spec.integration", False)],
)
async def test_a_wrong_type_is_left_to_the_schema(backends: Backends, path: str, value: object) -> None:
    refused_by_schema(await tried(backends.client, backends.made(pod_local, {path: value})), path)


@rule("ADM-13")
async def test_a_stored_backend_that_cannot_be_read_harms_only_itself_and_can_be_repaired(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        await backends.stored(pod_local, {"spec.observation.firstEventTimeout": "1d"}, domain="broken")
    await backends.stored(pod_local, name="other", domain="other")
    denied(await backends.label(), 400, "BadRequest", webhook="mcachebackend", message="1d")
    accepted(await backends.patch({"observation": {"firstEventTimeout": "10m"}}))
    accepted(await backends.label())


@rule("ADM-04", "ADM-116")
async def test_an_invalid_backend_with_a_finalizer_can_be_deleted(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        finalizer = {
            "metadata.finalizers": ["example.com/wait"],
            "spec.engineSelector.matchLabels": {"a": "b"},
        }
        await backends.stored(pod_local, finalizer)
    accepted(await backends.client.delete("CacheBackend", "cache", backends.namespace))
    freed = {"metadata": {"finalizers": None}}
    accepted(await backends.client.patch("CacheBackend", "cache", backends.namespace, freed))
    gone = await backends.client.get("CacheBackend", "cache", backends.namespace)
    assert gone.status == 404


@rule("ADM-05")
async def test_the_status_of_an_invalid_backend_can_be_written(
    backends: Backends, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        await backends.stored(pod_local, {"spec.engineSelector.matchLabels": {"a": "b"}})
    status = {"matchedEnginePods": 0}
    answer = await backends.client.set_status("CacheBackend", "cache", backends.namespace, status)
    assert accepted(answer)["status"] == status


@rule("ADM-02", "ADM-15")
async def test_a_dry_run_does_not_collide_with_the_real_request(backends: Backends) -> None:
    await backends.accepts(pod_local)
    await backends.stored(pod_local)
    accepted(await backends.label())


@rule("ADM-06")
async def test_siblings_are_read_as_they_are_now(backends: Backends) -> None:
    for number in range(10):
        await backends.stored(pod_local, name=f"b{number}", domain="d")
        second = backends.made(pod_local, name="second", domain="d")
        refused(await tried(backends.client, second), JUDGE, (DOMAIN_PATH, FORBIDDEN))
        accepted(await backends.client.delete("CacheBackend", f"b{number}", backends.namespace))
        accepted(await tried(backends.client, second))


@rule("ADM-125")
async def test_nothing_that_an_object_refers_to_has_to_exist(backends: Backends) -> None:
    changes = {
        STORAGE: EXTERNAL
        | {
            "endpoint": "nowhere.example:6379",
            "redis": {"authentication": {"password": {"name": "absent", "key": "k"}}},
        },
        "spec.lmCache.nodeLocal.scheduling": {"runtimeClassName": "absent", "serviceAccountName": "absent"},
        "spec.observation.firstEventTimeout": "-5m",
        f"{OVERRIDES}.args": ["--no-such-flag"],
    }
    await backends.accepts(node_local, changes)
