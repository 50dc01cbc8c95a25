"""The default overlay in a real cluster, as the operations chapter's install journey has it (13.1)."""

from __future__ import annotations

import json
from datetime import datetime

import grpc.aio
import pytest
import yaml
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.cluster.installation import SYSTEM, Installation
from tests.support.kube import ROOT
from tests.support.waiting import eventually
from tools.alerts import RULES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
rule = pytest.mark.rule

AVAILABLE_WITHIN_S = 180.0
OBSERVED_WITHIN_S = 90.0
OBSERVABILITY = ROOT / "deploy" / "overlays" / "observability"
SAMPLES = ROOT / "deploy" / "samples"


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@rule("OPS-118", "OPS-125")
async def test_every_deployment_is_available_within_three_minutes(installation: Installation) -> None:
    told = json.loads(await installation.kubectl("get", "deployments", "--output=json"))
    names = {item["metadata"]["name"] for item in told["items"]}
    assert names == {"inference-cache-server", "inference-cache-controller-manager"}
    for item in told["items"]:
        (available,) = (each for each in item["status"]["conditions"] if each["type"] == "Available")
        took = moment(available["lastTransitionTime"]) - moment(item["metadata"]["creationTimestamp"])
        assert available["status"] == "True"
        assert took < AVAILABLE_WITHIN_S


@rule("OPS-118", "OPS-125")
async def test_the_index_is_observed_and_empty(installation: Installation) -> None:
    kubectl = installation.kubectl
    await kubectl.wait("cacheindex/cluster-default", "jsonpath={.status.observedServer}", OBSERVED_WITHIN_S)
    shown = json.loads(await kubectl("get", "cacheindex", "cluster-default", "--output=json"))
    assert shown["status"]["observedServer"].startswith("jetstream://")
    assert shown["status"]["prefixes"]["summary"]["total"] == 0


@rule("OPS-118", "OPS-125", "OPS-06")
async def test_clients_of_the_service_are_answered(installation: Installation) -> None:
    address = await installation.address("inference-cache-server")
    async with grpc.aio.insecure_channel(f"{address}:9090") as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=30
        )
        listed = [service.name async for answer in call for service in answer.list_services_response.service]
    assert "inferencecache.v1alpha1.InferenceCache" in listed
    answer = await installation.lookup(address, list(range(64)), model="unknown")
    assert answer.reason_code == "NO_HINT"
    assert await installation.page(f"http://{address}:8080/readyz") == (200, "ok\n")
    status, page = await installation.page(f"http://{address}:8080/metrics")
    assert status == 200
    assert "inferencecache_server_up 1" in page


@rule("OPS-66")
async def test_cert_manager_issues_the_webhooks_certificate_and_the_api_server_trusts_it(
    installation: Installation,
) -> None:
    for kind in ("mutating", "validating"):
        configuration = f"{kind}webhookconfiguration/inference-cache-{kind}-webhook-configuration"
        authority = await installation.kubectl.value(configuration, ".webhooks[0].clientConfig.caBundle")
        issued = await installation.kubectl.value("secret/webhook-server-cert", r".data.ca\.crt")
        assert authority == issued != ""


@rule("OPS-70", "OPS-117", "OPS-125")
async def test_applying_it_again_leaves_every_object_as_it_is(installation: Installation) -> None:
    async def generations() -> str:
        columns = "custom-columns=KIND:.kind,NAME:.metadata.name,GENERATION:.metadata.generation"
        return await installation.kubectl("get", "-k", str(installation.overlay), f"--output={columns}")

    before = await generations()
    await installation.apply()
    assert await generations() == before
    await installation.available()


@rule("OPS-118")
async def test_the_observability_bundle_is_applied_beside_it(installation: Installation) -> None:
    await installation.kubectl("apply", "-k", str(OBSERVABILITY))
    applied = await installation.kubectl.value("prometheusrule/inference-cache-alerts", ".spec")
    assert json.loads(applied) == yaml.safe_load(RULES.read_text())
    await installation.kubectl("delete", "-k", str(OBSERVABILITY))


@rule("OPS-122", "OPS-125")
async def test_every_sample_is_admitted_by_the_webhooks_of_the_cluster(installation: Installation) -> None:
    await installation.kubectl("create", "namespace", "serving")
    for sample in sorted(SAMPLES.glob("*.yaml")):
        told = await installation.serving("apply", "--dry-run=server", f"--filename={sample}")
        assert "server dry run" in told


@rule("OPS-125")
async def test_a_second_backend_of_a_cache_domain_is_refused(installation: Installation) -> None:
    sample = yaml.safe_load((SAMPLES / "cachebackend-events-only.yaml").read_text())
    await installation.serving.apply(sample)
    second = sample | {"metadata": sample["metadata"] | {"name": "second"}}
    with pytest.raises(AssertionError, match="cache-domain"):
        await installation.serving.apply(second)


@rule("OPS-13")
async def test_nothing_was_restarted_on_the_way(installation: Installation) -> None:
    """But a pod that waited for the Secret of passwords; processes wait for NATS themselves."""

    async def restarts() -> list[str]:
        told = json.loads(await installation.kubectl("get", "pods", "--output=json"))
        return [
            f"{pod['metadata']['name']}: {status['restartCount']}, {status.get('lastState')}"
            for pod in told["items"]
            for status in pod["status"]["containerStatuses"]
            if status["restartCount"]
        ]

    assert SYSTEM in installation.kubectl.command[-1]
    assert await restarts() == []


@rule("OPS-125")
async def test_the_doctor_judges_the_objects_alone(installation: Installation) -> None:
    async def has_report() -> bool:
        ran = await installation.run("doctor", "--config-only", "-o", "json")
        report = json.loads(ran.told)
        return ran.code in (0, 1, 2) and {"summary", "findings"} <= report.keys()

    await eventually(has_report)
