"""`CacheIndex` and what backends have in the index, over a real log and a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.aggregate import Source
from inferencecache.controller.index.cache_index import CacheIndexProjection
from inferencecache.schemas.aggregate import Aggregate, AggregateReplica, AggregateTenant
from inferencecache.schemas.records import Stats
from tests.kube.engines import delete_pod
from tests.kube.plane_scene import PlaneScene
from tests.support.backends import events_only, pod_local
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.operating import operating, prepared
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
WITHIN_S = 45.0


async def index_of(kube: KubeClient) -> Document:
    """The status of `cluster-default`, empty while there is none."""
    answer = await kube.get("CacheIndex", "cluster-default")
    status: Document = answer.body.get("status", {}) if answer.status == 200 else {}
    return status


def stale(status: Document) -> tuple[str, str]:
    """Status and reason of the condition, empty without it."""
    return next(((each["status"], each["reason"]) for each in status.get("conditions", ())), ("", ""))


class Awaited:
    """A status that is looked at until it is as expected; `last` is how it then is."""

    def __init__(self, kube: KubeClient) -> None:
        self.kube = kube
        self.last: Document = {}

    async def until(self, **expected: Any) -> Document:
        """Total of prefixes, ids of replicas, staleness."""

        async def is_so() -> bool:
            self.last = status = await index_of(self.kube)
            found = {
                "total": status.get("prefixes", {}).get("summary", {}).get("total"),
                "replicas": [row["id"] for row in status.get("replicas", ())],
                "stale": stale(status)[0],
            }
            return all(found[key] == value for key, value in expected.items())

        await eventually(is_so, within_s=WITHIN_S, what=f"CacheIndex with {expected}")
        return self.last


@pytest.mark.rule("CTL-168", "CTL-169", "CTL-163", "CTL-160", "CRD-139", "CRD-150")
async def test_the_index_and_its_backend_are_told_as_they_change(scene: PlaneScene) -> None:
    await scene.plane.owner()
    index = Awaited(scene.kube)
    backend = await scene.backend(pod_local())
    pod = await scene.pod("e1", backend)

    async def participates(**expected: Any) -> None:
        async def is_so() -> bool:
            status = (await scene.kube.get("CacheBackend", "cache", scene.namespace)).body.get("status", {})
            told = status.get("indexParticipation", {})
            return all(told.get(key) == value for key, value in expected.items())

        await eventually(is_so, within_s=WITHIN_S, what=f"participation with {expected}")

    async with scene.operating() as operation:
        empty = await index.until(total=0, replicas=[], stale="False")
        assert empty["observedServer"] == "jetstream://IC_EVENTS/1"
        await participates(prefixCount=0, lastEventAt=None)
        producer = await scene.reporting(pod, 1)
        await producer.report(Stats(hit_rate=0.5, t2_hit_tokens=1, t2_query_tokens=4))
        full = await index.until(total=8, replicas=["e1"])
        (replica,) = full["replicas"]
        assert (replica["tenant"], replica["hitRate"]) == (scene.namespace, "0.5")
        assert full["tenants"] == [
            {"id": scene.namespace, "indexEntries": 8, "hitRate": "0.5", "memoryUsed": 0}
        ]
        await participates(prefixCount=8, t2HitRate="0.25")
        labels = {"backend": f"{scene.namespace}/cache"}
        rate = operation.registry.get_sample_value("inferencecache_backend_t2_hit_rate", labels)
        assert rate == 0.25
        await delete_pod(scene.kube, pod)
        await index.until(total=0, replicas=[])
        await participates(prefixCount=0, lastEventAt=None, t2HitRate=None)
        assert operation.registry.get_sample_value("inferencecache_backend_t2_hit_rate", labels) is None


@pytest.mark.rule("CTL-119", "CTL-10", "CTL-113")
async def test_a_backends_first_event_makes_it_ready_without_waiting_for_a_timer(scene: PlaneScene) -> None:
    await scene.plane.owner()
    backend = await scene.backend(events_only())
    pod = await scene.pod("e1", backend)

    async def status() -> Document:
        found = (await scene.kube.get("CacheBackend", "cache", scene.namespace)).body.get("status", {})
        return {**found, "ready": {each["type"]: each["reason"] for each in found.get("conditions", ())}}

    async def is_waiting() -> bool:
        return bool((await status())["ready"].get("Ready") == "AwaitingFirstKVEvent")

    async def is_told() -> bool:
        return "lastEventAt" in (await status()).get("indexParticipation", {})

    async def is_ready() -> bool:
        return bool((await status())["ready"].get("Ready") == "KVEventsObserved")

    async with scene.operating():
        await eventually(is_waiting, within_s=WITHIN_S)
        await scene.reporting(pod, 1)
        await eventually(is_told, within_s=WITHIN_S)
        await eventually(is_ready, within_s=10.0)  # the timer's next turn may be 30 s away
        ready = await status()
        assert ready["firstKVEventObservedAt"] == ready["indexParticipation"]["lastEventAt"]


@pytest.mark.rule("CTL-180", "CTL-170", "CTL-219")
async def test_an_index_that_nobody_counts_any_more_keeps_what_was_said_and_says_so(
    scene: PlaneScene,
) -> None:
    owner = await scene.plane.owner()
    index = Awaited(scene.kube)
    producer = await scene.plane.producer("e1")
    await producer.begin()
    await producer.store(1, 8)
    async with scene.operating():
        said = await index.until(total=8, stale="False")
        await scene.kube.delete("CacheIndex", "cluster-default")
        assert (await index.until(total=8, stale="False"))["prefixes"] == said["prefixes"]
        said = index.last
        await scene.plane.kill(owner)
        old = await index.until(stale="True")
        assert stale(old) == ("True", "AggregateIncomplete")
        assert old | {"conditions": said["conditions"]} == said
        await scene.plane.owner()
        assert (await index.until(stale="False"))["lastUpdated"] == said["lastUpdated"]


@pytest.mark.rule("CTL-167", "CTL-180")
async def test_the_index_is_there_though_the_log_never_answers(
    operated_server: ApiServer, operator_token: str, operated: KubeClient
) -> None:
    async with operating(operated_server, operator_token, "nats://127.0.0.1:1"):
        status = await Awaited(operated).until(stale="True")
    assert "prefixes" not in status
    assert "--nats-url" in status["conditions"][0]["message"]


@pytest.mark.rule("CTL-168")
async def test_an_index_that_one_object_has_no_room_for_is_told_in_part(
    operated_server: ApiServer, operator_token: str, operated: KubeClient
) -> None:
    stats: dict[str, Any] = {"last_update": "2026-03-01T11:59:58Z", "stats_reported": True, "hit_rate": 1 / 3}
    replicas = tuple(
        AggregateReplica(replica_id=f"engine-7d9c6b5f4-{number:05}", tenant="team-a", pressure=1 / 3, **stats)
        for number in range(20_000)
    )
    tenants = tuple(AggregateTenant(tenant_id=f"team-{number:03}", index_entries=1) for number in range(500))
    async with prepared(operated_server, operator_token, "nats://127.0.0.1:1") as operation:
        projection = CacheIndexProjection(operation.api, operation.writer)
        await projection.prepare()
        await projection.project(Source(Aggregate(replicas, tenants, 500), "jetstream://IC_EVENTS/1"))
    told = await index_of(operated)
    assert told["prefixes"]["summary"]["total"] == 500
    assert [row["id"] for row in told["tenants"]] == [tenant.tenant_id for tenant in tenants]
    shown = [row["id"] for row in told["replicas"]]
    assert len(shown) > 5_000
    assert shown == [replica.replica_id for replica in replicas[: len(shown)]]
    assert f"no room for {20_000 - len(shown)} of" in told["conditions"][0]["message"]
