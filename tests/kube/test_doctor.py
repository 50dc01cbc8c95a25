"""The doctor over a real API server: what is stored is judged, with the rights of whoever asks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.cli.doctor.checks import judge
from inferencecache.cli.doctor.collecting.engines import collect_of_cluster
from inferencecache.cli.doctor.collecting.kube import collect_kube, find_server
from inferencecache.cli.doctor.facts import Facts
from inferencecache.core.kube.api import KubeApi
from inferencecache.core.kube.cluster import Cluster
from tests.support.backends import change, pod_local
from tests.support.doctor_facts import pod
from tests.support.kube import ApiServer, Document, KubeClient, service_account_token
from tests.support.operating import access_of
from tests.support.resources import document

pytestmark = pytest.mark.kube
BACKENDS_ONLY = [
    {"apiGroups": ["inferencecache.io"], "resources": ["*"], "verbs": ["list"]},
    {"apiGroups": ["events.k8s.io", ""], "resources": ["events"], "verbs": ["list"]},
]


async def make(kube: KubeClient, made: Document, namespace: str) -> Document:
    """Store it in the namespace; the answer is as stored."""
    made = change(change(made, "metadata.namespace", namespace), "metadata.uid", None)
    answer = await kube.create(change(made, "metadata.generation", None))
    assert answer.status == 201, answer
    return answer.body


async def engine(kube: KubeClient, namespace: str, **marks: str) -> Document:
    """A pod that the backend selects."""
    made = change(pod(injected=False), "spec.containers", [{"name": "vllm", "image": "vllm:v0.16.0"}])
    return await make(kube, change(made, "metadata.annotations", marks or None), namespace)


async def codes(server: ApiServer, namespace: str, token: str = "") -> list[tuple[str, str]]:
    async with Cluster(access_of(server, token or server.token)) as cluster:
        facts = await collect_kube(KubeApi(cluster), namespace, dial=False)
    return [(each.code, each.resource) for each in judge(Facts(kube=facts)).findings]


@pytest.mark.rule("OPS-W23")
async def test_a_backend_that_nobody_reconciles_is_told_on_each_axis(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    await make(kube, pod_local(), namespace)
    backend = f"cachebackend/{namespace}/cache"
    assert await codes(api_server, namespace) == [
        ("CB001", backend),
        ("CB002", backend),
        ("CB003", backend),
        ("CP001", f"namespace/{namespace}"),
    ]


@pytest.mark.rule("OPS-W29", "OPS-88")
async def test_a_pod_is_proven_by_its_marks_or_by_an_event_of_either_api(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    backend = await make(kube, pod_local(), namespace)
    await make(kube, document("CachePolicy", "x/lookup", {}), namespace)
    marks = {"inferencecache.io/injected-by": f"{namespace}/cache"}
    marks["inferencecache.io/injected-by-uid"] = "of another life"
    made = await engine(kube, namespace, **marks)

    async def found() -> set[str]:
        return {code for code, _ in await codes(api_server, namespace) if code.startswith("EP")}

    assert await found() == {"EP001"}
    uid = made["metadata"]["uid"]
    told: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "told", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "engine-0", "uid": uid},
        "reason": "InjectedByCacheBackend",
        "type": "Normal",
        "message": "wired",
    }
    path = f"/api/v1/namespaces/{namespace}/events"
    assert (await kube.call("POST", path, told)).status == 201
    assert await found() == {"EP002"}
    await kube.call("DELETE", f"{path}/told")
    right = {"inferencecache.io/injected-by-uid": backend["metadata"]["uid"]}
    await kube.patch("Pod", "engine-0", namespace, {"metadata": {"annotations": right}})
    assert await found() == {"EP002"}


@pytest.mark.rule("OPS-W28")
async def test_whoever_may_not_list_pods_is_told_so_and_nothing_else(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    await make(kube, pod_local(), namespace)
    ready = {"type": "Ready", "status": "True", "reason": "Fine", "message": ""}
    ready["lastTransitionTime"] = seen = "2026-01-01T00:00:00Z"
    status = {"conditions": [ready], "firstKVEventObservedAt": seen}
    answer = await kube.set_status("CacheBackend", "cache", namespace, status)
    assert answer.status == 200, answer
    token = await service_account_token(kube, namespace, "looks")
    await kube.create(_role(namespace))
    await kube.create(_binding(namespace))
    assert await codes(api_server, namespace, token) == [
        ("API001", f"cachebackend/{namespace}/cache"),
        ("API001", "Pod"),
        ("CP001", f"namespace/{namespace}"),
    ]


def _role(namespace: str) -> Document:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    return {**kind, "metadata": {"name": "looks", "namespace": namespace}, "rules": BACKENDS_ONLY}


def _binding(namespace: str) -> Document:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"}
    subject = {"kind": "ServiceAccount", "name": "looks", "namespace": namespace}
    metadata = {"name": "looks", "namespace": namespace}
    return {**kind, "metadata": metadata, "roleRef": role, "subjects": [subject]}


@pytest.mark.rule("OPS-75")
async def test_the_service_of_the_install_is_found_where_it_is(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    async with Cluster(access_of(api_server, api_server.token)) as cluster:
        api = KubeApi(cluster)
        with pytest.raises(LookupError):
            await find_server(api)
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "inference-cache-server", "namespace": namespace},
            "spec": {"ports": [{"port": 9090}]},
        }
        assert (await kube.create(service)).status == 201
        assert await find_server(api) == namespace
        await kube.delete("Service", "inference-cache-server", namespace)


async def test_arguments_of_running_pods_are_judged_without_their_pages(
    api_server: ApiServer, kube: KubeClient, namespace: str
) -> None:
    await make(kube, pod_local(), namespace)
    made = change(pod(injected=False), "spec.containers", [])
    container = {"name": "vllm", "image": "vllm:v0.9.0", "args": ["--no-enable-prefix-caching"]}
    await make(kube, change(made, "spec.containers", [container]), namespace)
    assert (await kube.set_status("Pod", "engine-0", namespace, {"phase": "Running"})).status == 200
    async with Cluster(access_of(api_server, api_server.token)) as cluster:
        facts = await collect_kube(KubeApi(cluster), namespace, dial=False)
        engines = await collect_of_cluster(facts, cluster, with_pages=False)
    found = judge(Facts(engines=engines)).findings
    assert [(each.code, each.resource) for each in found] == [
        ("EN003", f"pod/{namespace}/engine-0"),
        ("EN004", f"pod/{namespace}/engine-0"),
    ]


@pytest.mark.rule("OPS-72", "OPS-73", "OPS-76", "OPS-W33")
async def test_the_command_reads_the_context_that_is_named(
    api_server: ApiServer, kube: KubeClient, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferencecache.cli.commands.doctor.configure_logging", lambda *_: None)
    await make(kube, pod_local(), namespace)
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["current-context"] = "nowhere"
    (tmp_path / "config").write_text(yaml.safe_dump(config))

    async def doctor(*arguments: str) -> Any:
        given = ["doctor", "--kubeconfig", str(tmp_path / "config"), "-n", namespace, *arguments]
        return await asyncio.to_thread(CliRunner().invoke, app, given)

    refused = await doctor("--config-only")
    assert (refused.exit_code, refused.stdout) == (1, "")
    result = await doctor("--context", "test", "--config-only", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert [each["code"] for each in found["findings"]] == ["CB001", "CB002", "CB003", "CP001"]

    whole = await doctor("--context", "test", "--json")
    assert whole.exit_code == 2
    found = json.loads(whole.stdout)["findings"]
    assert [each["code"] for each in found] == ["SV001", "CB001", "CB002", "CB003", "CP001"]
    assert "--server-endpoint" in found[0]["message"]
    assert "warning: " in whole.stderr

    named = await doctor("--context", "test", "-o", "table", "--nats-url", "nats://127.0.0.1:1")
    assert {"SV001", "SN001", "PL001", "PB001", "CB001"} <= set(named.stdout.split())
