"""The objects of a managed Redis."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.backend.redis import (
    RenderingError,
    redis_deployment,
    redis_service,
    service_endpoint,
)
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import DEPLOYMENTS, SERVICES, Document
from tests.support.backend_passes import Passes, managed, owner
from tests.support.backends import change

rule = pytest.mark.rule
SELECTOR = {
    "app.kubernetes.io/name": "cachebackend",
    "app.kubernetes.io/instance": "cache",
    "app.kubernetes.io/managed-by": "inference-cache-controller",
}
LABELS = SELECTOR | {"inferencecache.io/backend-type": "LMCache"}
PASSWORD = {"password": {"name": "s", "key": "password"}}


def pod_of(document: Document) -> Document:
    spec: Document = redis_deployment(Backend(document))["spec"]["template"]["spec"]
    return spec


def container_of(**redis: Any) -> Document:
    (container,) = pod_of(managed(**redis))["containers"]
    found: Document = container
    return found


@rule("CTL-31", "CTL-32", "CTL-33", "CTL-34", "CTL-35", "CTL-37", "CTL-W1")
def test_the_deployment_runs_one_redis_without_persistence() -> None:
    assert redis_deployment(Backend(managed())) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "cache",
            "namespace": "ns-a",
            "labels": LABELS,
            "ownerReferences": [owner()],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": SELECTOR},
            "strategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "schedulerName": "default-scheduler",
                    "terminationGracePeriodSeconds": 30,
                    "dnsPolicy": "ClusterFirst",
                    "containers": [
                        {
                            "name": "redis-l2",
                            "image": "docker.io/library/redis:7.4-alpine",
                            "imagePullPolicy": "IfNotPresent",
                            "args": [
                                "redis-server",
                                "--save",
                                "",
                                "--appendonly",
                                "no",
                                "--protected-mode",
                                "no",
                                "--maxmemory",
                                "6871947674",
                                "--maxmemory-policy",
                                "allkeys-lru",
                            ],
                            "ports": [{"name": "redis", "containerPort": 6379, "protocol": "TCP"}],
                            "readinessProbe": {
                                "tcpSocket": {"port": "redis"},
                                "initialDelaySeconds": 3,
                                "periodSeconds": 10,
                                "failureThreshold": 6,
                                "timeoutSeconds": 1,
                                "successThreshold": 1,
                            },
                            "resources": {"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}},
                        }
                    ],
                },
            },
        },
    }


@rule("CTL-32", "CTL-41", "CTL-42")
def test_the_service_is_where_engines_find_it() -> None:
    service = redis_service(Backend(change(managed(), "spec.type", None)))
    assert service == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "cache",
            "namespace": "ns-a",
            "labels": SELECTOR,
            "ownerReferences": [owner()],
        },
        "spec": {
            "type": "ClusterIP",
            "selector": SELECTOR,
            "ports": [{"name": "redis", "port": 6379, "targetPort": "redis", "protocol": "TCP"}],
        },
    }
    assert service_endpoint(service) == "cache.ns-a.svc.cluster.local:6379"
    assert service_endpoint(change(service, "spec.ports", [])) == ""
    assert service_endpoint(change(service, "spec.ports", [{"port": 7000}, {"port": 6379}])).endswith(":7000")


@rule("CTL-W2", "CTL-38")
@pytest.mark.parametrize(
    ("limit", "memory"), [("24Gi", 20615843021), ("6Gi", 5153960756), ("100Mi", 83886080), ("173", 139)]
)
def test_a_fifth_of_the_memory_is_not_for_blocks(limit: str, memory: int) -> None:
    arguments = container_of(resources={"limits": {"memory": limit}})["args"]
    assert arguments[arguments.index("--maxmemory") + 1] == str(memory)


@rule("CTL-W3", "CTL-37", "CTL-38")
@pytest.mark.parametrize("resources", [{"requests": {"memory": "2Gi"}}, {}])
def test_resources_are_taken_as_written_and_requests_are_no_limit(resources: Document) -> None:
    container = container_of(resources=resources)
    assert container["resources"] == resources
    assert "6871947674" in container["args"]


@rule("CTL-W4", "CTL-39")
def test_a_password_comes_from_its_secret() -> None:
    container = container_of(authentication=PASSWORD)
    assert container["args"][-2:] == ["--requirepass", "$(REDIS_PASSWORD)"]
    reference = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}}
    assert container["env"] == [{"name": "REDIS_PASSWORD"} | reference, {"name": "REDISCLI_AUTH"} | reference]
    assert container["readinessProbe"] == {
        "exec": {"command": ["redis-cli", "ping"]},
        "initialDelaySeconds": 3,
        "periodSeconds": 10,
        "failureThreshold": 6,
        "timeoutSeconds": 2,
        "successThreshold": 1,
    }
    assert "command" not in container


@rule("CTL-W4", "CTL-40")
async def test_a_managed_redis_with_a_username_is_not_rendered() -> None:
    authentication = PASSWORD | {"username": {"name": "s", "key": "user"}}
    passes = Passes(managed(authentication=authentication))
    with pytest.raises(RenderingError, match=r"redis\.authentication\.username"):
        await passes.run()
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is None
    assert passes.kube.stored(SERVICES, "cache", "ns-a") is None


@pytest.mark.parametrize("selector", [None, {"name": "s"}, {"key": "password"}])
def test_a_password_without_its_secret_is_not_rendered(selector: Document | None) -> None:
    with pytest.raises(RenderingError, match=r"password needs name and key"):
        container_of(authentication={"password": selector})


@rule("CTL-35", "CTL-36")
def test_scheduling_is_the_workloads_where_it_says_anything() -> None:
    workload: Document = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccountName": "redis",
        "securityContext": {"runAsUser": 999},
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "schedulerName": "other",
        "terminationGracePeriodSeconds": 0,
    }
    pod = pod_of(change(managed(), "spec.remoteStorage.workload", workload))
    assert {key: value for key, value in pod.items() if key not in ("containers", "dnsPolicy")} == workload


@rule("CTL-37")
def test_the_image_is_the_backends() -> None:
    assert container_of(image="redis:8")["image"] == "redis:8"


@rule("CTL-37", "CTL-38")
@pytest.mark.parametrize("memory", ["1e999999999", "-5"])
async def test_an_amount_that_no_container_can_have_is_not_sent_to_the_api(memory: str) -> None:
    passes = Passes(managed(resources={"limits": {"memory": memory}}))
    with pytest.raises(RenderingError, match=r"redis\.resources"):
        await passes.run()
    assert passes.kube.stored(DEPLOYMENTS, "cache", "ns-a") is None
