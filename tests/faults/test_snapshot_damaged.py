"""A snapshot's object is corrupted, or its upload interrupted: the previous one serves, else a fresh one."""

from __future__ import annotations

import asyncio
import signal

from inferencecache.core.log import Objects, Reader, Start
from inferencecache.core.log.subjects import SNAPSHOTS, snapshot_request_subject
from inferencecache.core.partitions import References
from tests.faults.conftest import Staged
from tests.support.fleet.injector import damage_object
from tests.support.fleet.many import hold_many
from tests.support.fleet.requests import fresh_snapshot
from tests.support.fleet.scene import Scene
from tests.support.fleet.witness import PartitionCopy
from tests.support.waiting import eventually

ENTRIES = 800_000
"""Many megabytes a partition: an upload of many chunks."""


async def test_a_corrupted_snapshot_gives_way_to_the_previous_one_else_to_a_fresh_one(staged: Staged) -> None:
    async with staged() as scene:
        fleet, witness = scene.fleet, scene.witness
        copy = witness.partitions[scene.partition]
        for _ in range(2):
            await scene.under_load()
            await fresh_snapshot(witness, copy)
        references = References(witness.log, copy.key)
        cold, *_ = (router.name for router in fleet.routers)
        damaged: set[str] = set()
        for spoils_previous in (False, True):
            refs, _ = await references.read()
            assert refs is not None
            assert refs.current is not None
            assert refs.previous is not None
            for name in {refs.current.object, *([refs.previous.object] if spoils_previous else [])} - damaged:
                await damage_object(witness, name)
                damaged.add(name)
            before = len(fleet.said(cold))
            await fleet.restart(cold)
            said = fleet.said(cold)[before:]
            assert said.count("snapshot_not_loaded") >= 1 + spoils_previous
            assert ("snapshot_asked_for" in said) == spoils_previous
            repairs = "inferencecache_router_view_repairs_total"
            assert await fleet.metric(cold, repairs, partition=copy.key) > 0
            assert await fleet.metric(cold, "inferencecache_router_view_complete") == 1
            await scene.anchor_found()
        latest, _ = await references.read()
        assert latest is not None
        assert latest.current is not None
        assert latest.current.object not in damaged
        await scene.settle()
        assert not scene.asking.amiss(*(router.name for router in fleet.routers[1:]))


async def test_an_interrupted_upload_is_nobodys_snapshot(staged: Staged) -> None:
    async with staged() as scene:
        fleet, witness = scene.fleet, scene.witness
        await hold_many(witness, ENTRIES, models=2)
        copy = witness.partitions[scene.partition]
        before = await fresh_snapshot(witness, copy)
        await interrupt_upload(scene, copy)
        pieces = await Objects(witness.log, SNAPSHOTS).unfinished(f"{copy.generation}/{copy.number}/")
        assert pieces
        assert (await References(witness.log, copy.key).read())[0] == before
        await fleet.restart(fleet.routers[0].name)
        await fleet.all_ready()
        after = await fresh_snapshot(witness, copy)
        assert after.current is not None
        assert after.current.object not in {piece.name for piece in pieces}
        await scene.anchor_found()
        assert not scene.asking.amiss(*(router.name for router in fleet.routers[1:]))


async def interrupt_upload(scene: Scene, copy: PartitionCopy) -> None:
    """Kill the owner between two chunks of a snapshot; it is started again."""
    log, owner = scene.witness.log, scene.owner(copy.number)
    uploading = asyncio.Event()

    def chunk_came(_: object) -> None:
        scene.fleet.signal(owner, signal.SIGSTOP)
        uploading.set()

    reader = Reader(
        log, f"OBJ_{SNAPSHOTS}", Start.NEW, chunk_came, lambda _: None, subjects=[f"$O.{SNAPSHOTS}.C.>"]
    )
    reading = asyncio.create_task(reader.run())
    await eventually(lambda: reader.openings > 0)
    await log.send(snapshot_request_subject(copy.generation, copy.number), b"")
    async with asyncio.timeout(30):
        await uploading.wait()
    reading.cancel()
    await scene.fleet.kill(owner)
    await scene.fleet.start(owner)
