"""Processes restarted 50 times each, and 10,000 pod names in turn: consumers, keys and memory stay flat.

What a name leaves behind in the log goes with the log's retention; until then subjects are bounded by the
names there were.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inferencecache.cli.stack.plan import TENANT
from inferencecache.core.log.jetstream import StreamInfo, call, stream_info, stream_names
from inferencecache.core.log.subjects import MEMBERS, REFS, partition_of, replica_subject
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.records import Batch, Begin, Gone, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.faults.conftest import Staged
from tests.support.fleet.asking import MODEL
from tests.support.fleet.injector import append, append_as, cut_log
from tests.support.fleet.processes import Fleet
from tests.support.fleet.requests import fresh_snapshot
from tests.support.fleet.scene import Scene
from tests.support.fleet.witness import Witness
from tests.support.waiting import eventually

RESTARTS = 50
PODS = 10_000
AT_ONCE = 100
GROWTH = 1.25
"""Memory of a process after 10,000 names, over that after the first 1,000."""


@pytest.mark.timeout(3600)
async def test_restarts_leave_nothing_behind(staged: Staged) -> None:
    async with staged() as scene:
        fleet, witness = scene.fleet, scene.witness
        consumers, members = await consumers_of(witness), await keys_of(witness, MEMBERS)
        references = await keys_of(witness, REFS)
        for _ in range(RESTARTS):
            await fleet.restart(*fleet.names)
        await scene.load.end()
        await scene.hold_anchor()
        await scene.settle()

        async def are_gone() -> bool:
            return await consumers_of(witness) <= consumers + 2 and await keys_of(witness, MEMBERS) <= members

        await eventually(are_gone, within_s=90, what="an end of what dead processes left")
        assert await keys_of(witness, REFS) == references


@pytest.mark.timeout(1800)
async def test_ten_thousand_pod_names_in_turn_leave_memory_flat(staged: Staged) -> None:
    async with staged() as scene:
        fleet, witness = scene.fleet, scene.witness
        copy = witness.partitions[scene.partition]
        measured = [name for name in fleet.names if name.startswith(("indexer", "router"))]
        first: dict[str, int] = {}
        subjects = await subjects_of(witness, copy.events)
        for number in range(0, PODS, AT_ONCE):
            await asyncio.gather(*(pass_by(scene, f"pod-{number + each}") for each in range(AT_ONCE)))
            if number + AT_ONCE == PODS // 10:
                first = {name: memory_of(fleet, name) for name in measured}
        for name in measured:
            assert memory_of(fleet, name) < GROWTH * first[name], name
        assert await subjects_of(witness, copy.events) <= subjects + PODS + 1  # of the controller
        refs = await fresh_snapshot(witness, copy)
        assert refs.current is not None
        await cut_log(witness, copy.events, below=refs.current.log.sequence)
        assert await subjects_of(witness, copy.events) < AT_ONCE
        latest = [scene.asking.last(router.name) for router in fleet.routers]
        assert all(answer is not None and scene.asking.found(answer) for answer in latest)
        assert not scene.asking.amiss()


async def pass_by(scene: Scene, pod: str) -> None:
    """A pod begins, holds something, and is deleted."""
    layout, replica = scene.witness.layout, ReplicaId(pod)
    sender = ReplicaSender(TenantId(TENANT), ModelId(MODEL), replica)
    number = partition_of(TENANT, MODEL, replica, layout)
    subject = replica_subject(layout.generation, number, sender)
    hashes = b"".join(key.to_bytes(8, "big") for key in range(100))
    held = Stored(HashScheme("vllm"), AdapterId(""), 1, 8, hashes, bytes(400))
    begin = Batch(Incarnation(f"life-of-{pod}"), 1, 0, (Begin(pod_uid=f"uid-{pod}"), held))
    await append(scene.witness, subject, encode_batch(begin))
    gone = Gone(TenantId(TENANT), replica, f"uid-{pod}")
    await append_as(scene.witness, scene.witness.partitions[number], "c", gone)


async def consumers_of(witness: Witness) -> int:
    """Consumers of all streams."""
    streams = [
        await call(witness.log, f"STREAM.INFO.{name}", None, StreamInfo)
        for name in await stream_names(witness.log)
    ]
    return sum(stream.state.consumer_count for stream in streams)


async def keys_of(witness: Witness, bucket: str) -> int:
    return await subjects_of(witness, f"KV_{bucket}")


async def subjects_of(witness: Witness, stream: str) -> int:
    return len((await stream_info(witness.log, stream, subjects=">")).state.subjects or ())


def memory_of(fleet: Fleet, name: str) -> int:
    """Resident pages of a process."""
    return int(Path(f"/proc/{fleet.pid(name)}/statm").read_text().split()[1])
