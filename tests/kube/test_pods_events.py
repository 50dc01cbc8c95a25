"""Events on engine pods at a real API server, as `kubectl describe pod` finds them."""

from __future__ import annotations

import pytest

from tests.kube.engines import engine_pod, stored_backend
from tests.kube.objects import stored
from tests.support.backends import DOMAIN, change, pod_local
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.nats import NatsServer
from tests.support.operating import operating
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube


async def events_of(kube: KubeClient, namespace: str) -> dict[str, list[Document]]:
    """Events by the pod that they are about."""
    found: dict[str, list[Document]] = {}
    listing = await kube.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    for event in listing.body["items"]:
        if event["regarding"]["kind"] == "Pod":
            found.setdefault(event["regarding"]["name"], []).append(event)
    return found


async def told_of(kube: KubeClient, namespace: str, *pods: str) -> dict[str, list[Document]]:
    """The Events, once there is one about each of these pods."""
    found: list[dict[str, list[Document]]] = []

    async def is_so() -> bool:
        found.append(await events_of(kube, namespace))
        return all(pod in found[-1] for pod in pods)

    await eventually(is_so, within_s=45, what=f"Events of {pods}")
    return found[-1]


@pytest.mark.rule("CTL-203", "CTL-207", "CTL-210", "CTL-202", "CTL-213", "ADM-258", "ADM-261", "ADM-262")
async def test_pods_are_told_what_admission_did_to_them_once(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_server: NatsServer,
) -> None:
    namespace = operated_namespace
    backend = await stored_backend(operated, namespace, pod_local())
    uid = backend["metadata"]["uid"]
    wired = await stored(operated, engine_pod(namespace, "wired", backend))
    skipped = {"skip-inject": "true", "inject-skipped": "skip-inject-annotation"}
    await stored(operated, engine_pod(namespace, "skipped", marks=skipped))
    earlier = {"injected-by": f"{namespace}/cache", "injected-by-uid": "of-an-earlier-life"}
    await stored(operated, engine_pod(namespace, "stranger", marks=earlier))
    async with operating(operated_server, operator_token, nats_server.url):
        await told_of(operated, namespace, "wired", "skipped")
        lost = change(engine_pod(namespace, "lost"), "metadata.labels", {DOMAIN: "elsewhere"})
        await stored(operated, lost)
        events = await told_of(operated, namespace, "wired", "skipped", "lost")
        await operated.patch("Pod", "lost", namespace, {"metadata": {"labels": {"touched": "yes"}}})
        await stored(operated, engine_pod(namespace, "last", backend))
        events = await told_of(operated, namespace, "last")
    assert {pod: [event["reason"] for event in of_pod] for pod, of_pod in events.items()} == {
        "wired": ["InjectedByCacheBackend"],
        "skipped": ["SkippedByOperator"],
        "lost": ["NoMatchingCacheBackend"],
        "last": ["InjectedByCacheBackend"],
    }
    (event,) = events["wired"]
    assert event["regarding"]["uid"] == wired["metadata"]["uid"]
    assert (event["related"]["name"], event["related"]["uid"]) == ("cache", uid)
    assert event["reportingController"] == "engine-pod-events"
    assert event["note"] == f'Injected engine config from CacheBackend "{namespace}/cache"'
    assert "series" not in event


@pytest.mark.rule("CTL-202", "CTL-213", "ADM-262")
async def test_a_controller_that_starts_again_adds_no_second_event(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_server: NatsServer,
) -> None:
    backend = await stored_backend(operated, operated_namespace, pod_local())
    await stored(operated, engine_pod(operated_namespace, "wired", backend))
    async with operating(operated_server, operator_token, nats_server.url):
        await told_of(operated, operated_namespace, "wired")
    async with operating(operated_server, operator_token, nats_server.url):

        async def is_counted() -> bool:
            events = await events_of(operated, operated_namespace)
            return [event.get("series", {}).get("count") for event in events["wired"]] == [2]

        await eventually(is_counted, within_s=45)
