"""An owner stopped under load and a change of policy, then continued: nothing it says late does harm."""

from __future__ import annotations

import pytest

from inferencecache.core.log import WrongLastSequenceError
from inferencecache.core.log.subjects import delta_subject
from inferencecache.schemas.deltas import encode_delta
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.records import Budget, PolicyApplied, Tick
from tests.faults.conftest import Staged
from tests.support.fleet.injector import append_as, lasting, stopped
from tests.support.fleet.requests import set_ttl
from tests.support.waiting import eventually

YEAR_US = 365 * 86_400 * 1_000_000


@pytest.mark.parametrize("stopped_s", [5.0, 30.0])
async def test_an_owner_that_was_stopped_does_no_harm_afterwards(staged: Staged, stopped_s: float) -> None:
    async with staged() as scene:
        witness, copy = scene.witness, scene.witness.partitions[scene.partition]
        owner = scene.owner(scene.partition)
        claimed, told = copy.claims[-1], copy.deltas[-1]
        async with stopped(scene.fleet, owner):
            await eventually(lambda: copy.claims[-1] != claimed, within_s=30, what="another owner")
            revision = await set_ttl(witness, 600)
            await lasting(stopped_s)
        late = (OwnerId(claimed.claim.owner), claimed.sequence)
        outdated = await scene.dropped("outdated_record")
        await append_as(
            witness,
            copy,
            "o",
            PolicyApplied(*late, revision - 1),
            Budget(*late, 0),
            Tick(*late, YEAR_US),
        )
        with pytest.raises(WrongLastSequenceError):
            await witness.log.publisher.publish(
                delta_subject(copy.generation, copy.number),
                encode_delta(told.delta),
                expect_last_sequence=told.number,
            )
        await scene.under_load()
        await scene.settle()
        assert await scene.dropped("outdated_record") >= outdated + 3
        assert copy.head.policy_revision == revision
        assert not scene.asking.amiss()
