"""Pods that are deleted leave the routers' views; their successors stay."""

from __future__ import annotations

import msgspec
import pytest

from inferencecache.controller.operating import Operating
from inferencecache.core.kube.kinds import PODS, ObjectKey
from inferencecache.core.log import Bucket
from inferencecache.core.log.subjects import LAYOUT, LAYOUT_KEY
from inferencecache.schemas.ids import ReplicaId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.records import Gone
from tests.kube.engines import delete_pod, engine_pod, stored_backend
from tests.kube.objects import stored
from tests.support.backends import pod_local
from tests.support.dataplane import ASSETS, MODEL, DataPlane, Producer, holders_of
from tests.support.kube import ApiServer, Document, KubeClient
from tests.support.nats import NatsServer
from tests.support.operating import operating
from tests.support.sidecar import generation_tail
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
VISIBLE_S = 5.0
"""How long a deleted pod may stay in a router's view."""


async def reporting(plane: DataPlane, pod: Document, first: int) -> Producer:
    """The pod's sidecar, which has reported blocks from `first` on."""
    metadata = pod["metadata"]
    producer = await plane.producer(
        metadata["name"], tenant=TenantId(metadata["namespace"]), pod_uid=metadata["uid"]
    )
    await producer.begin()
    await producer.store(first)
    return producer


async def is_observed(operation: Operating, pod: Document) -> None:
    """Return once the controller knows the pod."""
    key = ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
    await eventually(lambda: operation.observed.get(PODS, key) is not None, within_s=45)


async def test_a_deleted_pods_holds_leave_every_view_and_its_successors_stay(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_server: NatsServer,
    plane: DataPlane,
) -> None:
    await plane.owner()
    routers = [await plane.follower() for _ in range(2)]
    tenant = TenantId(operated_namespace)

    def held_by(key: int) -> list[set[str]]:
        return [holders_of(router, key, MODEL, tenant) for router in routers]

    backend = await stored_backend(operated, operated_namespace, pod_local())
    async with operating(operated_server, operator_token, nats_server.url) as operation:
        pods = [
            await stored(operated, engine_pod(operated_namespace, name, backend))
            for name in ("e1", "e2", "e3")
        ]
        first, second, _ = [
            await reporting(plane, pod, 100 * number) for number, pod in enumerate(pods, start=1)
        ]
        await is_observed(operation, pods[2])
        await eventually(lambda: held_by(300) == [{"e3"}] * 2)
        await delete_pod(operated, pods[0])
        await eventually(lambda: held_by(100) == [set()] * 2, within_s=VISIBLE_S)
        assert held_by(200) == [{"e2"}] * 2

        # Its last batch arrives late, as does a sidecar that begins anew: the pod stays gone.
        await first.store(110)
        await first.begin()
        await second.store(210)
        await eventually(lambda: held_by(210) == [{"e2"}] * 2)
        assert held_by(100) == held_by(110) == [set()] * 2

        # Its successor has its name, and reports before the end of another pod is told of.
        successor = await stored(operated, engine_pod(operated_namespace, "e1", backend))
        await reporting(plane, successor, 400)
        await eventually(lambda: held_by(400) == [{"e1"}] * 2)
        await delete_pod(operated, pods[1])
        await eventually(lambda: held_by(200) == [set()] * 2, within_s=VISIBLE_S)
        assert held_by(400) == [{"e1"}] * 2


async def test_a_pod_whose_successor_is_there_already_takes_nothing_along(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_server: NatsServer,
    plane: DataPlane,
) -> None:
    await plane.owner()
    router = await plane.follower()
    tenant = TenantId(operated_namespace)
    backend = await stored_backend(operated, operated_namespace, pod_local())
    async with operating(operated_server, operator_token, nats_server.url) as operation:
        old = await stored(operated, engine_pod(operated_namespace, "e1", backend))
        bystander = await stored(operated, engine_pod(operated_namespace, "e2", backend))
        await reporting(plane, old, 100)
        await reporting(plane, bystander, 200)
        await is_observed(operation, bystander)
        nats_server.stop()  # what the controller has to say has to wait
        await delete_pod(operated, old)
        new = await stored(operated, engine_pod(operated_namespace, "e1", backend))
        nats_server.start()
        await reporting(plane, new, 300)
        await delete_pod(operated, bystander)
        # One partition holds both pods, so the first departure is folded before the second.
        await eventually(lambda: not holders_of(router, 200, MODEL, tenant), within_s=45)
        await eventually(lambda: holders_of(router, 300, MODEL, tenant) == {"e1"})
        assert not holders_of(router, 100, MODEL, tenant)


async def test_a_generation_that_comes_later_hears_of_recent_departures(
    operated_server: ApiServer,
    operator_token: str,
    operated: KubeClient,
    operated_namespace: str,
    nats_server: NatsServer,
    plane: DataPlane,
) -> None:
    backend = await stored_backend(operated, operated_namespace, pod_local())
    pod = await stored(operated, engine_pod(operated_namespace, "e1", backend))
    gone = Gone(TenantId(operated_namespace), ReplicaId("e1"), pod["metadata"]["uid"])
    async with operating(operated_server, operator_token, nats_server.url) as operation:
        await is_observed(operation, pod)
        await eventually(lambda: operation.layout is not None, within_s=45)
        log = await plane.log()
        async with generation_tail(log, 1) as tail:
            await delete_pod(operated, pod)
            await eventually(lambda: tail.records(Gone) == [gone], within_s=VISIBLE_S)
        second = CurrentLayout(2, 1, older=(Layout(1, ASSETS.partitions),))
        await Bucket(log, LAYOUT).put(LAYOUT_KEY, msgspec.json.encode(second))
        await eventually(lambda: operation.layout == second, within_s=45)
        async with generation_tail(log, 2) as tail:
            await eventually(lambda: tail.records(Gone) == [gone], within_s=VISIBLE_S)
