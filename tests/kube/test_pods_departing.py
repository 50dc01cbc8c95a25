"""Pods that are deleted leave the routers' views; their successors stay."""

from __future__ import annotations

import msgspec
import pytest

from inferencecache.controller.operating import Operating
from inferencecache.core.kube.kinds import PODS, ObjectKey
from inferencecache.core.log import Bucket
from inferencecache.core.log.subjects import LAYOUT, LAYOUT_KEY
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.records import Gone
from tests.kube.engines import delete_pod
from tests.kube.plane_scene import PlaneScene
from tests.support.backends import pod_local
from tests.support.dataplane import ASSETS, MODEL, holders_of
from tests.support.kube import Document
from tests.support.sidecar import generation_tail
from tests.support.waiting import eventually

pytestmark = pytest.mark.kube
VISIBLE_S = 5.0
"""How long a deleted pod may stay in a router's view."""


async def is_observed(operation: Operating, pod: Document) -> None:
    """Return once the controller knows the pod."""
    key = ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])
    await eventually(lambda: operation.observed.get(PODS, key) is not None, within_s=45)


async def test_a_deleted_pods_holds_leave_every_view_and_its_successors_stay(scene: PlaneScene) -> None:
    await scene.plane.owner()
    routers = [await scene.plane.follower() for _ in range(2)]
    tenant = scene.tenant

    def held_by(key: int) -> list[set[str]]:
        return [holders_of(router, key, MODEL, tenant) for router in routers]

    backend = await scene.backend(pod_local())
    async with scene.operating() as operation:
        pods = [await scene.pod(name, backend) for name in ("e1", "e2", "e3")]
        first, second, _ = [
            await scene.reporting(pod, 100 * number) for number, pod in enumerate(pods, start=1)
        ]
        await is_observed(operation, pods[2])
        await eventually(lambda: held_by(300) == [{"e3"}] * 2)
        await delete_pod(scene.kube, pods[0])
        await eventually(lambda: held_by(100) == [set()] * 2, within_s=VISIBLE_S)
        assert held_by(200) == [{"e2"}] * 2

        # Its last batch arrives late, as does a sidecar that begins anew: the pod stays gone.
        await first.store(110)
        await first.begin()
        await second.store(210)
        await eventually(lambda: held_by(210) == [{"e2"}] * 2)
        assert held_by(100) == held_by(110) == [set()] * 2

        # Its successor has its name, and reports before the end of another pod is told of.
        successor = await scene.pod("e1", backend)
        await scene.reporting(successor, 400)
        await eventually(lambda: held_by(400) == [{"e1"}] * 2)
        await delete_pod(scene.kube, pods[1])
        await eventually(lambda: held_by(200) == [set()] * 2, within_s=VISIBLE_S)
        assert held_by(400) == [{"e1"}] * 2


async def test_a_pod_whose_successor_is_there_already_takes_nothing_along(scene: PlaneScene) -> None:
    await scene.plane.owner()
    router = await scene.plane.follower()
    tenant = scene.tenant
    backend = await scene.backend(pod_local())
    async with scene.operating() as operation:
        old = await scene.pod("e1", backend)
        bystander = await scene.pod("e2", backend)
        await scene.reporting(old, 100)
        await scene.reporting(bystander, 200)
        await is_observed(operation, bystander)
        scene.nats.stop()  # what the controller has to say has to wait
        await delete_pod(scene.kube, old)
        new = await scene.pod("e1", backend)
        scene.nats.start()
        await scene.reporting(new, 300)
        await delete_pod(scene.kube, bystander)
        # One partition holds both pods, so the first departure is folded before the second.
        await eventually(lambda: not holders_of(router, 200, MODEL, tenant), within_s=45)
        await eventually(lambda: holders_of(router, 300, MODEL, tenant) == {"e1"})
        assert not holders_of(router, 100, MODEL, tenant)


async def test_a_generation_that_comes_later_hears_of_recent_departures(scene: PlaneScene) -> None:
    backend = await scene.backend(pod_local())
    pod = await scene.pod("e1", backend)
    gone = Gone(scene.tenant, ReplicaId("e1"), pod["metadata"]["uid"])
    async with scene.operating() as operation:
        await is_observed(operation, pod)
        await eventually(lambda: operation.layout is not None, within_s=45)
        log = await scene.plane.log()
        async with generation_tail(log, 1) as tail:
            await delete_pod(scene.kube, pod)
            await eventually(lambda: tail.records(Gone) == [gone], within_s=VISIBLE_S)
        second = CurrentLayout(2, 1, older=(Layout(1, ASSETS.partitions),))
        await Bucket(log, LAYOUT).put(LAYOUT_KEY, msgspec.json.encode(second))
        await eventually(lambda: operation.layout == second, within_s=45)
        async with generation_tail(log, 2) as tail:
            await eventually(lambda: tail.records(Gone) == [gone], within_s=VISIBLE_S)
