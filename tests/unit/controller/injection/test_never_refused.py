"""Nothing that is injected may make the API refuse a pod that it would take without."""

from __future__ import annotations

import pytest

from tests.support.backends import change, events_only, node_local, pod_local
from tests.support.engine_pods import SOURCES, pod_local_wired, pod_v, sidecar, with_init
from tests.unit.controller.injection.asking import SIDECAR, Document, ask, stay, wire

STRICT = {"inferencecache.io/lmcache-kernel-check": "strict"}
OBSERVED = {"modelID": "m"}
AUTHENTICATION = "spec.remoteStorage.redis.authentication"


def beside(name: str, key: str = "containers") -> Document:
    pod = pod_v()
    pod["spec"].setdefault(key, []).append({"name": name, "image": "own:1"})
    return pod


@pytest.mark.rule("ADM-188", "ADM-198", "ADM-250")
def test_a_name_that_an_ordinary_container_has_is_not_given_twice() -> None:
    assert "lmcache-mp-server" in stay(beside("lmcache-mp-server"), pod_local())
    assert "lmcache-node-local-gate" in stay(beside("lmcache-node-local-gate"), node_local())


@pytest.mark.rule("ADM-204", "ADM-251")
def test_nor_is_that_of_the_kernel_check_which_is_left_out_then() -> None:
    pod = beside("lmcache-kernel-check")
    strict = change(pod_local(), "metadata.annotations", STRICT)
    assert wire(pod, strict) == pod_local_wired(pod, "--model", "x")
    assert "no kernel check" in ask(pod, strict).message


@pytest.mark.rule("ADM-224", "ADM-252")
def test_nor_is_that_of_the_sidecar_which_is_left_out_then() -> None:
    pod = beside("kvevent-subscriber", "initContainers")
    observed = change(pod_local(), "spec.observation", OBSERVED)
    assert len(wire(pod, observed, sidecar=SIDECAR)["spec"]["containers"]) == 1
    assert "kvevent-subscriber" in stay(pod, events_only(), sidecar=SIDECAR)


@pytest.mark.rule("ADM-225")
def test_on_the_hosts_network_the_sidecar_takes_no_port_of_the_node() -> None:
    pod = change(pod_v(), "spec.hostNetwork", value=True)
    expected = sidecar(offload=False)
    del expected["ports"]
    assert wire(pod, events_only(), sidecar=SIDECAR)["spec"]["containers"][-1] == expected


@pytest.mark.rule("ADM-250")
@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("image", " ", "server.image"),
        ("image", None, "server"),
        ("maxWorkers", 0, "server"),
        ("port", 70000, "server"),
        ("l1Capacity", "0", "server.l1Capacity"),
        ("l1Capacity", "-5Gi", "server.l1Capacity"),
        (
            "resources",
            {"requests": {"memory": "6Gi"}, "limits": {"memory": "5Gi"}},
            "server.resources.limits[memory]",
        ),
        ("resources", {"limits": {"gpus": "1"}}, "server.resources.limits[gpus]"),
        ("resources", {"claims": [{"name": "c"}]}, "server.resources.claims"),
    ],
    ids=str,
)
def test_a_server_that_is_no_container_is_not_injected(field: str, value: object, named: str) -> None:
    backend = change(pod_local(), f"spec.lmCache.podLocal.server.{field}", value)
    assert f"spec.lmCache.podLocal.{named}" in stay(pod_v(), backend)
    if field == "image":
        backend = change(node_local(), f"spec.lmCache.nodeLocal.server.{field}", value)
        assert f"spec.lmCache.nodeLocal.{named}" in stay(pod_v(), backend)


@pytest.mark.rule("ADM-250", "ADM-270")
@pytest.mark.parametrize("backend", [pod_local(), node_local()], ids=["pod", "node"])
def test_an_engine_does_not_wait_for_a_server_that_cannot_run(backend: Document) -> None:
    assert "chunkSizeTokens" in stay(pod_v(), change(backend, "spec.lmCache.chunkSizeTokens", 0))
    if "nodeLocal" in backend["spec"]["lmCache"]:
        assert "httpPort" in stay(pod_v(), change(backend, "spec.lmCache.nodeLocal.server.httpPort", 6555))


@pytest.mark.rule("ADM-250")
@pytest.mark.parametrize(
    "variable",
    [{"name": ""}, {"name": "1A"}, {"name": "A", "value": "v", "valueFrom": {"fieldRef": {}}}],
    ids=str,
)
def test_overrides_that_are_no_variables_are_not_injected(variable: Document) -> None:
    backend = change(pod_local(), "spec.integration.engineOverrides", {"env": [variable]})
    assert "spec.integration.engineOverrides.env[0]" in stay(pod_v(), backend)


@pytest.mark.rule("ADM-250", "ADM-213")
@pytest.mark.parametrize(("source", "is_taken"), SOURCES, ids=str)
def test_overrides_with_a_source_that_no_pod_may_have_are_not_injected(
    source: Document, is_taken: bool
) -> None:
    variable = {"name": "A", "valueFrom": source}
    backend = change(pod_local(), "spec.integration.engineOverrides", {"env": [variable]})
    if is_taken:
        assert variable in wire(pod_v(), backend)["spec"]["containers"][0]["env"]
    else:
        (kind,) = source
        assert f"engineOverrides.env[0].valueFrom.{kind}" in stay(pod_v(), backend)


@pytest.mark.rule("ADM-250")
@pytest.mark.parametrize("role", ["username", "password"])
@pytest.mark.parametrize(
    "selector",
    [
        {"key": "k"},
        {"name": "n"},
        {"name": "", "key": "k"},
        {"name": "n", "key": "a b"},
        {"name": "N", "key": "k"},
    ],
    ids=str,
)
def test_credentials_that_name_no_key_of_a_secret_are_not_injected(role: str, selector: Document) -> None:
    store = {"provider": "Redis", "ownership": "External", "endpoint": "r:6379"}
    backend = change(pod_local(), "spec.remoteStorage", store)
    authentication = {"password": {"name": "n", "key": "k"}} | {role: selector}
    assert f"{AUTHENTICATION}.{role}" in stay(pod_v(), change(backend, AUTHENTICATION, authentication))


@pytest.mark.rule("ADM-250")
@pytest.mark.parametrize("backend", [pod_local(), events_only(), node_local()], ids=["pod", "events", "node"])
def test_containers_for_linux_are_not_given_to_a_pod_for_windows(backend: Document) -> None:
    assert "spec.os.name" in stay(change(pod_v(), "spec.os", {"name": "windows"}), backend, sidecar=SIDECAR)
    assert wire(change(pod_v(), "spec.os", {"name": "linux"}), backend, sidecar=SIDECAR)


@pytest.mark.rule("ADM-250", "ADM-134")
@pytest.mark.parametrize(
    ("resources", "named"),
    [
        ({"requests": {"memory": "5Gi"}}, ""),
        ({"requests": {"memory": "5119Mi"}}, "spec.resources.requests[memory]"),
        ({"requests": {"cpu": "1"}, "limits": {"memory": "5Gi"}}, ""),
        ({"requests": {"cpu": "999m"}}, "spec.resources.requests[cpu]"),
        ({"limits": {"memory": "4Gi"}}, "spec.resources.limits[memory]"),
        ({}, ""),
    ],
    ids=str,
)
def test_what_is_added_fits_into_what_the_pod_asks_for_as_a_whole(resources: Document, named: str) -> None:
    pod = change(pod_v(), "spec.resources", resources)
    if named:
        assert named in stay(pod, pod_local())
    else:
        assert wire(pod, pod_local())["spec"]["resources"] == resources


@pytest.mark.rule("ADM-250")
def test_init_containers_count_one_by_one_and_servers_all_the_time() -> None:
    gibi = {"resources": {"requests": {"memory": "1Gi"}}}
    engine = pod_v(resources={"limits": {"memory": "2Gi"}})
    pod = with_init(change(engine, "spec.resources", {"requests": {"memory": "7Gi"}}), "own", **gibi)
    assert wire(pod, pod_local())
    more = with_init(pod, "other", restartPolicy="Always", **gibi)
    assert "spec.resources.requests[memory]" in stay(more, pod_local())
    large = with_init(pod, "other", resources={"requests": {"memory": "8Gi"}})
    assert "spec.resources.requests[memory]" in stay(large, pod_local())
