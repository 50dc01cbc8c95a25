"""A pod is deleted, its last batch and its delete event arrive late and twice: its holds leave the views and
never return; its successor's stay.
"""

from __future__ import annotations

import time

from inferencecache.cli.stack.plan import TENANT
from inferencecache.schemas.ids import ReplicaId, TenantId
from inferencecache.schemas.records import Alive, Batch, Gone, decode_batch, encode_batch
from tests.faults.conftest import Staged
from tests.support.fleet.checks import views_equal_log
from tests.support.fleet.holds import folded_holds
from tests.support.fleet.injector import append, append_as
from tests.support.fleet.scene import Scene
from tests.support.waiting import eventually

LIMIT_S = 5.0
POD = "engine-1"
OF_POD = ("engine-1", "sidecar-1")


async def test_holds_of_a_deleted_pod_go_for_good_and_those_of_its_successor_stay(staged: Staged) -> None:
    first, second = "uid-first", "uid-second"
    async with staged(environment={"sidecar-1": (f"POD_UID={first}",)}) as scene:
        fleet, witness = scene.fleet, scene.witness
        copy = witness.partitions[scene.partition]
        await fleet.kill(*OF_POD)
        last = decode_batch(copy.batches_of(POD)[-1].payload).batch
        late = encode_batch(Batch(last.incarnation, last.sequence + 1, 0, (Alive(),)))
        subject = copy.batches_of(POD)[-1].subject
        begin = copy.batches_of(POD)[0].payload
        deleted_at = time.monotonic()
        for _ in range(2):
            await pod_gone(scene, first)
        await eventually(lambda: is_gone(scene), within_s=30, what="a view without the pod")
        assert time.monotonic() - deleted_at < LIMIT_S
        gone_at = time.monotonic()
        dropped = await scene.dropped("gone")
        for payload in (begin, late, *(raw.payload for raw in copy.batches_of(POD)[1:])):
            await append(witness, subject, payload)
        await scene.under_load()
        assert POD not in folded_holds(witness.folds)
        assert await scene.dropped("gone") >= dropped + 2
        assert not [
            answer for answer in scene.asking.answers if answer.at > gone_at and scene.asking.found(answer)
        ]
        await scene.load.end()
        await views_equal_log(fleet, witness)

        fleet.environment["sidecar-1"] = (f"POD_UID={second}",)
        for name in OF_POD:
            await fleet.start(name)
            await fleet.ready(name)
        await scene.hold_anchor()
        await scene.anchor_found()
        scene.asking.forget()
        for _ in range(2):
            await pod_gone(scene, first)
        async with scene.loaded():
            await scene.settle()
        assert not scene.asking.amiss()


async def pod_gone(scene: Scene, uid: str) -> None:
    """What the controller appends when it hears that the pod is deleted."""
    gone = Gone(TenantId(TENANT), ReplicaId(POD), uid)
    for copy in scene.witness.partitions:
        await append_as(scene.witness, copy, "c", gone)


def is_gone(scene: Scene) -> bool:
    """Does no router's latest answer find the pod?"""
    latest = [scene.asking.last(router.name) for router in scene.fleet.routers]
    return all(answer is not None and not scene.asking.found(answer) for answer in latest)
