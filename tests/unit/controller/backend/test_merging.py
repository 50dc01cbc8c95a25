"""Bringing a stored Deployment or Service to what it should be, and touching nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from inferencecache.controller.backend.merging import merged_deployment, merged_service
from inferencecache.controller.backend.redis import redis_deployment, redis_service
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document
from tests.support.backend_passes import managed
from tests.support.backends import change

rule = pytest.mark.rule
DESIRED = redis_deployment(Backend(managed()))
POD = "spec.template.spec"


def as_stored(deployment: Document) -> Document:
    """As the API server stores it: with its defaults, and amounts in their shortest form."""
    stored = copy.deepcopy(deployment)
    stored["metadata"] |= {"uid": "d", "resourceVersion": "7", "annotations": {"deployment/revision": "1"}}
    stored["spec"] |= {"progressDeadlineSeconds": 600, "revisionHistoryLimit": 10}
    stored["spec"]["strategy"]["rollingUpdate"] = {"maxSurge": "25%", "maxUnavailable": "25%"}
    pod = stored["spec"]["template"]["spec"]
    pod |= {"restartPolicy": "Always", "securityContext": pod.get("securityContext", {})}
    if "serviceAccountName" in pod:
        pod["serviceAccount"] = pod["serviceAccountName"]
    (container,) = pod["containers"]
    container |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    container.setdefault("resources", {})
    return stored


LIVE = as_stored(DESIRED)


@rule("CTL-43", "CTL-44", "CTL-45")
def test_what_the_server_filled_in_is_no_difference() -> None:
    assert merged_deployment(LIVE, DESIRED) == LIVE


@rule("CTL-43")
@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ({"limits": {"memory": "1024Mi", "cpu": "0.5"}}, {"limits": {"memory": "1Gi", "cpu": "500m"}}),
        ({"limits": {}, "requests": {}}, {}),
        ({}, {}),
    ],
)
def test_equal_amounts_are_no_difference(written: Document, stored: Document) -> None:
    desired = redis_deployment(Backend(managed(resources=written)))
    live = as_stored(desired)
    live["spec"]["template"]["spec"]["containers"][0]["resources"] = stored
    assert merged_deployment(live, desired) == live


@rule("CTL-43")
def test_what_the_server_leaves_out_is_no_difference() -> None:
    workload = {
        "nodeSelector": {},
        "tolerations": [{"key": "a", "operator": "Exists", "value": ""}],
        "imagePullSecrets": [],
        "priorityClassName": "",
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "t", "labelSelector": {"matchLabels": {}}, "namespaces": []}
                ]
            }
        },
    }
    desired = redis_deployment(Backend(change(managed(), "spec.remoteStorage.workload", workload)))
    live = as_stored(DESIRED)
    live["spec"]["template"]["spec"] |= {
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "t", "labelSelector": {}}]
            }
        },
    }
    assert merged_deployment(live, desired) == live


@rule("CTL-34", "CTL-36", "CTL-44", "CTL-45")
@pytest.mark.parametrize(
    ("path", "by_hand"),
    [
        ("metadata.labels", {"mine": "too"}),
        ("spec.replicas", 3),
        ("spec.replicas", 0),
        ("spec.strategy", {"type": "Recreate"}),
        ("spec.template.metadata.labels", {"app.kubernetes.io/name": "cachebackend"}),
        (f"{POD}.volumes", [{"name": "v", "emptyDir": {}}]),
        (f"{POD}.hostNetwork", True),
        (f"{POD}.dnsPolicy", "Default"),
        (f"{POD}.nodeSelector", {"disk": "ssd"}),
        (f"{POD}.securityContext", {"runAsUser": 0}),
        (f"{POD}.schedulerName", "other"),
        (f"{POD}.terminationGracePeriodSeconds", 0),
    ],
)
def test_what_is_ours_is_restored(path: str, by_hand: Any) -> None:
    merged = merged_deployment(change(LIVE, path, by_hand), DESIRED)
    expected = LIVE
    if path == "spec.strategy":
        expected = change(LIVE, path, {"type": "RollingUpdate"})
    elif path == f"{POD}.securityContext":
        expected = change(LIVE, path, None)
    assert merged == expected


@rule("CTL-44")
@pytest.mark.parametrize(
    ("field", "by_hand"),
    [
        ("image", "redis:8"),
        ("imagePullPolicy", "Always"),
        ("command", ["sh"]),
        ("args", ["redis-server"]),
        ("env", [{"name": "A"}]),
        ("ports", []),
        ("volumeMounts", [{"name": "v", "mountPath": "/v"}]),
        ("livenessProbe", {"tcpSocket": {"port": 1}}),
        ("readinessProbe", None),
        ("startupProbe", {"tcpSocket": {"port": 1}}),
        ("securityContext", {"privileged": True}),
        ("resources", {"limits": {"memory": "9Gi"}}),
    ],
)
def test_what_is_ours_of_the_container_is_restored(field: str, by_hand: Any) -> None:
    live = copy.deepcopy(LIVE)
    live["spec"]["template"]["spec"]["containers"][0][field] = by_hand
    assert merged_deployment(live, DESIRED) == LIVE


@rule("CTL-44")
def test_containers_of_others_go_and_a_missing_one_comes() -> None:
    live = copy.deepcopy(LIVE)
    containers = live["spec"]["template"]["spec"]["containers"]
    containers.insert(0, {"name": "mine"})
    assert merged_deployment(live, DESIRED) == LIVE
    containers.pop()
    merged = merged_deployment(live, DESIRED)["spec"]["template"]["spec"]["containers"]
    assert merged == DESIRED["spec"]["template"]["spec"]["containers"]


@rule("CTL-44")
@pytest.mark.parametrize(
    ("path", "by_hand"),
    [
        ("metadata.annotations", {"mine": "too"}),
        ("spec.revisionHistoryLimit", 1),
        ("spec.strategy.rollingUpdate", {"maxSurge": 1}),
        ("spec.template.metadata.annotations", {"kubectl.kubernetes.io/restartedAt": "now"}),
        (f"{POD}.enableServiceLinks", False),
    ],
)
def test_what_is_not_ours_stays(path: str, by_hand: Any) -> None:
    live = change(LIVE, path, by_hand)
    assert merged_deployment(live, DESIRED) == live


@rule("CTL-36")
def test_a_service_account_goes_under_both_of_its_names() -> None:
    workload = change(managed(), "spec.remoteStorage.workload", {"serviceAccountName": "redis"})
    live = as_stored(redis_deployment(Backend(workload)))
    pod = merged_deployment(live, DESIRED)["spec"]["template"]["spec"]
    assert not pod.keys() & {"serviceAccount", "serviceAccountName"}
    changed = change(workload, "spec.remoteStorage.workload.serviceAccountName", "other")
    pod = merged_deployment(live, redis_deployment(Backend(changed)))["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "other"
    assert pod.get("serviceAccount", "other") == "other"


@rule("CTL-43", "CTL-44")
def test_a_service_keeps_its_address() -> None:
    desired = redis_service(Backend(managed()))
    live = copy.deepcopy(desired)
    live["spec"] |= {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "sessionAffinity": "None"}
    assert merged_service(live, desired) == live
    for path, by_hand in (
        ("metadata.labels", {"mine": "too"}),
        ("spec.type", "NodePort"),
        ("spec.selector", {"app": "mine"}),
        ("spec.ports", [{"port": 1}]),
    ):
        assert merged_service(change(live, path, by_hand), desired) == live
