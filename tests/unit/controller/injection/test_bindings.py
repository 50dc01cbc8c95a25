"""How a server gets to the backend's remote storage, and who gets its credentials."""

from __future__ import annotations

import pytest

from tests.support.backends import REDIS, change, events_only, hi_cache, node_local, pod_local
from tests.support.engine_pods import engine_pod, pod_v, server_args
from tests.unit.controller.injection.asking import SIDECAR, Document, stay, wire

BOTH = pytest.mark.parametrize("backend", [pod_local(), node_local()], ids=["pod", "node"])
EXTERNAL = {"provider": "Redis", "ownership": "External"}
AUTHENTICATION = {
    "password": {"name": "redis", "key": "password"},
    "username": {"name": "redis", "key": "user"},
}


def stored_at(endpoint: str | None, backend: Document | None = None) -> Document:
    external = EXTERNAL if endpoint is None else EXTERNAL | {"endpoint": endpoint}
    return change(backend or pod_local(), "spec.remoteStorage", external)


def server_of(pod: Document) -> Document:
    server: Document = pod["spec"]["initContainers"][0]
    return server


@pytest.mark.rule("ADM-161", "ADM-175")
def test_without_remote_storage_there_is_no_adapter() -> None:
    assert server_of(wire(pod_v(), pod_local()))["args"] == server_args()


@pytest.mark.rule("ADM-162", "ADM-177")
@pytest.mark.parametrize(
    ("endpoint", "adapter"),
    [
        ("redis.example:6379", '{"host":"redis.example","port":6379,"type":"resp"}'),
        ("  10.0.0.9:1 ", '{"host":"10.0.0.9","port":1,"type":"resp"}'),
        ("[fd00::1]:6379", '{"host":"fd00::1","port":6379,"type":"resp"}'),
    ],
)
def test_an_external_store_is_where_the_spec_says(endpoint: str, adapter: str) -> None:
    server = server_of(wire(pod_v(), stored_at(endpoint)))
    assert server["args"] == server_args(more=("--l2-adapter", adapter))


@pytest.mark.rule("ADM-162", "ADM-164", "ADM-249")
@pytest.mark.parametrize("endpoint", [None, "", "r", "r:0", "redis://r:6379", "r:70000", "::1:6379"])
@BOTH
def test_a_pod_is_left_alone_without_a_usable_external_endpoint(
    endpoint: str | None, backend: Document
) -> None:
    external = change(stored_at(endpoint, backend), "status.remoteStorage.endpoint", "r:6379")
    assert "spec.remoteStorage.endpoint" in stay(pod_v(), external)


@pytest.mark.rule("ADM-163", "ADM-164", "ADM-W25", "ADM-249")
@BOTH
def test_a_managed_store_is_where_its_status_says(backend: Document) -> None:
    managed = change(backend, "spec.remoteStorage", REDIS)
    wire(pod_v(), change(managed, "status.remoteStorage.endpoint", " r:6379 "))
    for endpoint in (None, "", "r"):
        unknown = change(managed, "status.remoteStorage.endpoint", endpoint)
        assert "status.remoteStorage.endpoint" in stay(pod_v(), unknown)


@pytest.mark.rule("ADM-165", "ADM-249")
def test_an_unknown_provider_or_one_that_the_adapter_refuses_leaves_the_pod_alone() -> None:
    assert "provider" in stay(pod_v(), change(pod_local(), "spec.remoteStorage", {"provider": "Disk"}))
    refused = stored_at("r:6379", hi_cache())
    assert "sglang/SGLangHiCache cannot use" in stay(engine_pod(name="sglang"), refused)


@pytest.mark.rule("ADM-164")
def test_who_only_observes_needs_no_store() -> None:
    wire(pod_v(), stored_at(None, events_only()), sidecar=SIDECAR)


@pytest.mark.rule("ADM-177", "ADM-250")
@pytest.mark.parametrize(("field", "value"), [("tls", {"caCertificate": {"key": "ca"}}), ("database", 0)])
def test_what_a_server_cannot_be_told_leaves_the_pod_alone(field: str, value: object) -> None:
    backend = change(stored_at("r:6379"), f"spec.remoteStorage.redis.{field}", value)
    assert f"redis.{field}" in stay(pod_v(), backend)


@pytest.mark.rule("ADM-180")
def test_credentials_go_to_the_server_alone_and_by_reference() -> None:
    backend = change(stored_at("r:6379"), "spec.remoteStorage.redis.authentication", AUTHENTICATION)
    backend = change(backend, "spec.observation", {"modelID": "m"})
    backend = change(backend, "metadata.annotations", {"inferencecache.io/lmcache-kernel-check": "strict"})
    spec = wire(pod_v(), backend, sidecar=SIDECAR)["spec"]
    assert server_of({"spec": spec})["env"] == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "INFERENCECACHE_MP_SERVER", "value": "true"},
        {
            "name": "LMCACHE_RESP_USERNAME",
            "valueFrom": {"secretKeyRef": {"name": "redis", "key": "user"}},
        },
        {
            "name": "LMCACHE_RESP_PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}},
        },
    ]
    assert str(spec).count("LMCACHE_RESP") == 2
    alone = change(backend, "spec.remoteStorage.redis.authentication.username", None)
    assert [entry["name"] for entry in server_of(wire(pod_v(), alone))["env"]][2:] == [
        "LMCACHE_RESP_PASSWORD"
    ]
