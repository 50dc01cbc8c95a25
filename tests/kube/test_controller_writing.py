"""Reading and writing through the real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from inferencecache.controller.kube.recording import NORMAL, Note, Recorder
from inferencecache.controller.kube.writing import ContendedError, Writer
from inferencecache.core.kube.api import KubeApi, RefusedCallError
from inferencecache.core.kube.cluster import Cluster
from inferencecache.core.kube.kinds import (
    CACHE_POLICIES,
    PODS,
    SERVICES,
    Document,
    ObjectKey,
    controller_reference,
)
from inferencecache.schemas.resources import document_of
from tests.kube.objects import stored
from tests.support.kube import ApiServer, KubeClient
from tests.support.operating import access_of
from tests.support.resources import policy
from tests.support.waiting import a_turn

pytestmark = pytest.mark.kube
HELLO = Note(NORMAL, "Hello", "hello there")


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[KubeApi]:
    async with Cluster(access_of(api_server, api_server.token)) as cluster:
        yield KubeApi(cluster)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def writer(api: KubeApi, registry: CollectorRegistry) -> Writer:
    return Writer(api, registry)


def writes(registry: CollectorRegistry) -> float:
    return sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "inferencecache_controller_writes_total"
    )


def service(live: Document | None, namespace: str, port: int = 80) -> Document:
    """A Service of which only the port is ours."""
    head = live or {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": namespace},
        "spec": {"selector": {"app": "a"}},
    }
    ports = [{"name": "redis", "port": port, "targetPort": "redis", "protocol": "TCP"}]
    return head | {"spec": head["spec"] | {"ports": ports}}


@pytest.mark.rule("CTL-19", "CTL-43")
async def test_an_object_is_made_changed_and_left_alone_when_it_is_right(
    writer: Writer, registry: CollectorRegistry, namespace: str
) -> None:
    key = ObjectKey(namespace, "s")
    first = await writer.apply(SERVICES, key, lambda live: service(live, namespace))
    assert first["spec"]["clusterIP"]
    assert await writer.apply(SERVICES, key, lambda live: service(live, namespace)) == first
    assert writes(registry) == 1
    second = await writer.apply(SERVICES, key, lambda live: service(live, namespace, 81))
    assert second["spec"]["ports"][0]["port"] == 81
    assert second["spec"]["clusterIP"] == first["spec"]["clusterIP"]
    assert writes(registry) == 2


@pytest.mark.rule("CTL-43")
async def test_a_conflict_is_tried_again_with_fresh_data(
    writer: Writer, kube: KubeClient, namespace: str
) -> None:
    made = await stored(kube, document_of(policy(f"{namespace}/p", minimumPrefixTokens=1)))
    key, seen = ObjectKey(namespace, "p"), []

    def build(live: Document | None) -> Document:
        assert live is not None
        seen.append(live["spec"]["minimumPrefixTokens"])
        return live | {"spec": live["spec"] | {"minimumMatchedTokens": 7}}

    class Meddling(KubeApi):
        """Somebody else changes the object between the first read and the write."""

        async def replace(self, kind: object, document: Document) -> Document:
            if len(seen) == 1:
                await kube.patch("CachePolicy", "p", namespace, {"spec": {"minimumPrefixTokens": 2}})
            return await super().replace(CACHE_POLICIES, document)

    meddled = Writer(Meddling(writer._api._cluster), CollectorRegistry())
    result = await meddled.apply(CACHE_POLICIES, key, build)
    assert seen == [1, 2]
    assert (result["spec"]["minimumPrefixTokens"], result["spec"]["minimumMatchedTokens"]) == (2, 7)
    assert result["metadata"]["uid"] == made["metadata"]["uid"]

    class Restless(KubeApi):
        async def replace(self, kind: object, document: Document) -> Document:
            raise RefusedCallError("PUT", 409, "Conflict", "changed")

    restless = Writer(Restless(writer._api._cluster), CollectorRegistry())
    with pytest.raises(ContendedError):
        await restless.apply(CACHE_POLICIES, key, lambda live: service(live, namespace))


@pytest.mark.rule("CTL-21")
async def test_a_status_changes_only_in_the_fields_that_are_named(
    writer: Writer, registry: CollectorRegistry, kube: KubeClient, namespace: str
) -> None:
    made = await stored(kube, document_of(policy(f"{namespace}/p")))
    await kube.patch("CachePolicy", "p", namespace, {"metadata": {"labels": {"changed": "meanwhile"}}})
    assert await writer.set_status(CACHE_POLICIES, made, {"observedGeneration": 1})
    now = (await kube.get("CachePolicy", "p", namespace)).body
    condition = {"type": "A", "status": "True", "reason": "R", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assert await writer.set_status(CACHE_POLICIES, now, {"conditions": [condition]})
    now = (await kube.get("CachePolicy", "p", namespace)).body
    assert now["status"] == {"observedGeneration": 1, "conditions": [condition]}
    assert not await writer.set_status(CACHE_POLICIES, now, dict(now["status"]))
    assert await writer.set_status(CACHE_POLICIES, now, {"observedGeneration": None})
    assert (await kube.get("CachePolicy", "p", namespace)).body["status"] == {"conditions": [condition]}
    assert writes(registry) == 3


async def test_nothing_is_written_to_another_life_of_an_object(
    writer: Writer, registry: CollectorRegistry, kube: KubeClient, namespace: str
) -> None:
    former = await stored(kube, document_of(policy(f"{namespace}/p")))
    await kube.delete("CachePolicy", "p", namespace)
    await stored(kube, document_of(policy(f"{namespace}/p")))
    with pytest.raises(RefusedCallError) as refused:
        await writer.set_status(CACHE_POLICIES, former, {"observedGeneration": 1})
    assert refused.value.is_conflict
    assert not await writer.delete(CACHE_POLICIES, former)
    assert (await kube.get("CachePolicy", "p", namespace)).status == 200
    assert writes(registry) == 0


async def test_a_pod_of_the_same_name_gets_no_annotations_of_its_predecessor(
    writer: Writer, kube: KubeClient, namespace: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    former = await stored(kube, pod)
    await writer.annotate(PODS, former, {"a": "1", "b": "2"})
    now = (await kube.get("Pod", "p", namespace)).body
    assert now["metadata"]["annotations"] == {"a": "1", "b": "2"}
    await writer.annotate(PODS, now, {"a": "1", "b": None})
    assert (await kube.get("Pod", "p", namespace)).body["metadata"]["annotations"] == {"a": "1"}
    await kube.call("DELETE", f"{PODS.path(namespace, 'p')}?gracePeriodSeconds=0")
    await stored(kube, pod)
    with pytest.raises(RefusedCallError) as refused:
        await writer.annotate(PODS, former, {"a": "1"})
    assert refused.value.status == 422, "its uid cannot be changed"
    assert "annotations" not in (await kube.get("Pod", "p", namespace)).body["metadata"]


@pytest.mark.rule("CTL-51")
async def test_only_what_the_owner_controls_is_deleted_for_it(
    writer: Writer, kube: KubeClient, namespace: str
) -> None:
    owner = await stored(kube, document_of(policy(f"{namespace}/owner")))
    uid = owner["metadata"]["uid"]
    foreign = service(None, namespace)
    owned = service(None, namespace)
    owned["metadata"] |= {"name": "owned", "ownerReferences": [controller_reference(owner)]}
    for each in (foreign, owned):
        await stored(kube, each)
    assert not await writer.delete_owned(SERVICES, ObjectKey(namespace, "absent"), uid)
    assert not await writer.delete_owned(SERVICES, ObjectKey(namespace, "s"), uid)
    assert await writer.delete_owned(SERVICES, ObjectKey(namespace, "owned"), uid)
    names = [each["metadata"]["name"] for each in (await kube.list_all("Service", namespace)).body["items"]]
    assert names == ["s"]


async def test_who_asks_while_a_listing_runs_gets_the_next_one(
    api: KubeApi, kube: KubeClient, namespace: str
) -> None:
    running = asyncio.ensure_future(api.list_all(CACHE_POLICIES, namespace))
    await a_turn()
    await stored(kube, document_of(policy(f"{namespace}/p")))
    later = await asyncio.gather(*(api.list_all(CACHE_POLICIES, namespace) for _ in range(5)))
    await running
    assert all(each is later[0] for each in later)
    (item,) = later[0].items
    assert (item["kind"], item["apiVersion"]) == ("CachePolicy", CACHE_POLICIES.api_version)


@pytest.mark.rule("CTL-213")
async def test_what_is_said_again_is_counted_in_the_event_that_is_there(
    writer: Writer, kube: KubeClient, namespace: str
) -> None:
    about = await stored(kube, document_of(policy(f"{namespace}/p")))

    async def events() -> list[Document]:
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        return list((await kube.call("GET", path)).body["items"])

    recorder = Recorder(writer, "test-controller", "life-1")
    counts = []
    for _ in range(3):
        assert await recorder.record(about, HELLO)
        (event,) = await events()
        counts.append((event.get("series") or {}).get("count", 1))
    assert counts == [1, 2, 3]
    (event,) = await events()
    assert (event["reason"], event["action"], event["type"]) == ("Hello", "Hello", "Normal")
    assert event["reportingController"] == "test-controller"
    assert event["regarding"]["uid"] == about["metadata"]["uid"]
    restarted = Recorder(writer, "test-controller", "life-2")
    assert await restarted.record(about, HELLO)
    assert len(await events()) == 1
    assert await restarted.record(about, HELLO._replace(message="something else"), related=about)
    assert len(await events()) == 2
    for each in await events():
        await kube.delete("Event", each["metadata"]["name"], namespace)
    assert await restarted.record(about, HELLO)
    (event,) = await events()
    assert event.get("series") is None, "the server forgets Events after a while"


@pytest.mark.rule("CTL-213")
async def test_an_event_about_the_longest_name_says_as_much_as_the_server_takes(
    writer: Writer, kube: KubeClient, namespace: str
) -> None:
    name = "p" + "a" * 234 + "." + "b" * 17
    about = await stored(kube, document_of(policy(f"{namespace}/{name}")))
    recorder = Recorder(writer, "test-controller", "life-1")
    assert await recorder.record(about, HELLO._replace(message="é" * 1000))
    (event,) = (await kube.list_all("Event", namespace)).body["items"]
    assert event["message"] == "é" * 512
