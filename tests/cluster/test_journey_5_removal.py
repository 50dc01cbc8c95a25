"""Everything deleted: the installation leaves engines running, and nothing of its own behind."""

from __future__ import annotations

import json

import pytest

from tests.cluster.installation import SERVING, SYSTEM, WITHIN_S, Installation
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
rule = pytest.mark.rule

KINDS = (
    *("namespaces", "customresourcedefinitions", "clusterroles", "clusterrolebindings"),
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "apiservices"),
    *("priorityclasses", "roles", "rolebindings", "persistentvolumeclaims", "leases"),
)


@rule("OPS-71", "OPS-118")
async def test_engines_run_on_and_nothing_else_is_left(installation: Installation) -> None:
    kubectl = installation.kubectl
    before = {pod.name for pod in await installation.engines()}
    assert before
    await kubectl(
        "delete", "-k", str(installation.overlay), f"--timeout={WITHIN_S:.0f}s", limit_s=2 * WITHIN_S
    )
    assert await kubectl("get", "-k", str(installation.overlay), "--ignore-not-found", "--output=name") == ""
    told = await kubectl("get", ",".join(KINDS), "--all-namespaces", "--output=json")
    left = [
        f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        for item in json.loads(told)["items"]
        if "inference-cache" in json.dumps(item["metadata"] | {"managedFields": None})
        or "inferencecache.io" in item["metadata"]["name"]
    ]
    assert left == []
    assert {pod.name for pod in await installation.engines()} == before
    for engine in await installation.engines():
        status, _ = await installation.page(f"http://{engine.address}:8000/health")
        assert status == 200


@rule("OPS-71")
async def test_engines_that_are_made_now_get_nothing(installation: Installation) -> None:
    kubectl = installation.serving
    await kubectl("rollout", "restart", "deployment/engines")
    await installation.rolled_out(kubectl, "deployment/engines")

    async def are_bare() -> bool:
        told = await kubectl("get", "pods", "--selector=app=engines", "--output=json")
        pods = json.loads(told)["items"]
        return all(len(pod["spec"]["containers"]) == 1 for pod in pods)

    await eventually(are_bare, within_s=WITHIN_S)
    told = json.loads(await kubectl("get", "pods", "--output=json"))
    assert "inferencecache.io/injected" not in json.dumps(
        [pod["metadata"].get("annotations") for pod in told["items"]]
    )


@rule("OPS-71")
async def test_the_namespace_of_the_engines_ends(installation: Installation) -> None:
    await installation.kubectl("delete", "namespace", SERVING, limit_s=WITHIN_S)
    told = await installation.kubectl("get", "pods", "--all-namespaces", "--output=name")
    assert told == "", SYSTEM
