"""Duplicate, reordered and truncated messages, unknown records and hostile bytes: dropped and counted."""

from __future__ import annotations

from random import Random

import msgspec

from inferencecache.cli.stack.plan import TENANT
from inferencecache.core.log.subjects import replica_subject
from inferencecache.schemas.ids import Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.records import Alive, Batch, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.faults.conftest import Staged
from tests.support.fleet.asking import MODEL
from tests.support.fleet.checks import index_equals_engines
from tests.support.fleet.injector import append
from tests.support.fleet.scene import SEED

UNKNOWN_TAG = 99


async def test_they_are_dropped_and_counted_and_change_nothing(staged: Staged) -> None:
    async with staged(loaded=False) as scene:
        fleet, witness = scene.fleet, scene.witness
        copy = witness.partitions[scene.partition]
        async with scene.loaded():
            pass
        await index_equals_engines(fleet, witness)
        pids = {name: fleet.pid(name) for name in fleet.running()}
        reasons = ("duplicate", "undecodable", "unknown_record", "malformed_record", "unknown", "jump")
        before = {reason: await scene.dropped(reason) for reason in reasons}
        holds = dict(copy.head.holds)
        random = Random(SEED)
        theirs = copy.batches_of("engine-2")
        subject = theirs[0].subject
        for raw in random.sample(theirs, k=10):  # again, and in another order
            await append(witness, subject, raw.payload)
        for raw in random.sample(theirs, k=10):
            await append(witness, subject, raw.payload[: random.randrange(1, len(raw.payload))])
        for hostile in (
            b"",
            b"\xff" * 100,
            random.randbytes(1000),
            b"\xdd\xff\xff\xff\xff",
            b"\x91" * 10_000,
        ):
            await append(witness, subject, hostile)
            await append(witness, subject.removesuffix("e") + "x", hostile)
            await append(witness, f"ic.ev.{copy.generation}.{copy.number}._.o", hostile)
        last = witness.partitions[scene.partition].head.lives
        life = next(life for of, life in last.items() if of.replica == "engine-2")
        for sequence, record in enumerate(
            ([UNKNOWN_TAG, "x"], [2, "no fields of a store"]), life.sequence + 1
        ):
            payload = msgspec.msgpack.encode([life.incarnation, sequence, 0, [record]])
            await append(witness, subject, payload)
        stranger = ReplicaSender(TenantId(TENANT), ModelId(MODEL), ReplicaId("stranger"))
        payload = encode_batch(Batch(Incarnation("never begun"), 1, 0, (Alive(),)))
        await append(witness, replica_subject(copy.generation, copy.number, stranger), payload)
        assert copy.head.holds == holds
        await append(
            witness, subject, encode_batch(Batch(Incarnation(life.incarnation), 10_000, 0, (Alive(),)))
        )
        async with scene.loaded():
            await scene.settle()
        for reason in reasons:
            assert await scene.dropped(reason) > before[reason], reason
        assert {name: fleet.pid(name) for name in fleet.running()} == pids
        assert not scene.asking.amiss()
