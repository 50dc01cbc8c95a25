"""Two indexers both believe that they own a partition: one wins, and the other steps down."""

from __future__ import annotations

import time

import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.log import WrongLastSequenceError
from inferencecache.core.log.subjects import delta_subject
from inferencecache.schemas.deltas import encode_delta
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.records import Claim, Tick
from tests.faults.conftest import Staged
from tests.support.fleet.injector import append_as
from tests.support.fleet.scene import Scene
from tests.support.fleet.witness import PartitionCopy
from tests.support.waiting import eventually

INTRUDER = OwnerId("intruder")


async def test_one_wins_and_the_other_steps_down(staged: Staged) -> None:
    """The second one is played by the test: it claims, tells a delta as an owner does, and then goes on."""
    async with staged() as scene:
        copy = scene.witness.partitions[scene.partition]
        assert copy.claims[-1].claim.owner != INTRUDER
        claim = Claim(INTRUDER, copy.claims[-1].claim.log_epoch)
        epoch = await append_as(scene.witness, copy, "o", claim)
        number = await tell(scene, copy, epoch)
        claimed_at = time.monotonic()
        await eventually(lambda: copy.claims[-1].claim.owner != INTRUDER, within_s=30, what="a claim back")
        await eventually(lambda: copy.deltas[-1].delta.owner != INTRUDER, within_s=30)
        outdated = await scene.dropped("outdated_record")
        await append_as(scene.witness, copy, "o", Tick(INTRUDER, epoch, 1))
        with pytest.raises(WrongLastSequenceError):
            await publish_delta(scene, copy, epoch, number)

        def owners() -> list[str]:
            rows = scene.witness.indexers(claimed_at)
            return [id_ for id_, row in rows.items() if row.partitions[copy.key].owner]

        await eventually(lambda: owners() == [copy.claims[-1].claim.owner], within_s=30, what="one owner")
        await scene.under_load()
        await scene.settle()
        assert await scene.dropped("outdated_record") > outdated
        assert INTRUDER in {told.delta.owner for told in copy.deltas}
        assert not scene.asking.amiss()


async def tell(scene: Scene, copy: PartitionCopy, epoch: int) -> int:
    """Tell the next delta, behind what the other owner has told before it folded the claim; its number."""
    while True:
        await eventually(lambda: copy.messages[-1].position.sequence >= epoch)
        try:
            return await publish_delta(scene, copy, epoch, copy.deltas[-1].number)
        except WrongLastSequenceError as error:
            await eventually(lambda error=error: copy.deltas[-1].number >= error.last)  # type: ignore[misc]


async def publish_delta(scene: Scene, copy: PartitionCopy, epoch: int, after: int) -> int:
    """A right delta behind the one of that number: what a fold of the log has to say."""
    fold = Fold()
    for message in copy.messages:
        fold.fold(message)
    told = next(each.delta for each in copy.deltas if each.number == after)
    [piece] = fold.changes.cut(told.to, 1 << 30)
    subject, payload = delta_subject(copy.generation, copy.number), encode_delta(piece.delta(INTRUDER, epoch))
    return (await scene.witness.log.publisher.publish(subject, payload, expect_last_sequence=after)).sequence
