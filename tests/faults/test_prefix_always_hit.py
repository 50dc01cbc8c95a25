"""A prefix that is always hit and so never stored again stays, however short the time to live is."""

from __future__ import annotations

import time

from inferencecache.schemas.records import Batch, Stored
from tests.faults.conftest import Staged
from tests.support.fleet.holds import folded_holds
from tests.support.fleet.injector import lasting
from tests.support.fleet.requests import set_ttl
from tests.support.waiting import eventually

TTL_S = 5
FLAGS = {"sidecar": ("--alive-interval=1s",), "indexer": ("--sweep-interval=1s",)}


async def test_it_stays_while_its_sidecar_says_that_it_is_alive(staged: Staged) -> None:
    async with staged(flags=FLAGS, loaded=False) as scene:
        fleet, witness = scene.fleet, scene.witness
        async with scene.loaded():
            await set_ttl(witness, TTL_S)
        assert folded_holds(witness.folds)["engine-2"]
        scene.asking.forget()
        before = [batch for batch in scene.batches("engine-1") if has_stores(batch)]
        began = time.monotonic()
        await fleet.kill("sidecar-2")  # nobody speaks for its engine: that the time to live is in force
        await eventually(lambda: "engine-2" not in folded_holds(witness.folds), within_s=60)
        assert time.monotonic() - began > TTL_S - 2
        while time.monotonic() - began < 2.5 * TTL_S:
            await scene.hold_anchor()
            await lasting(0.5)
        assert [batch for batch in scene.batches("engine-1") if has_stores(batch)] == before
        assert not scene.asking.amiss()
        await fleet.start("sidecar-2")
        async with scene.loaded():
            await scene.settle()
        assert not scene.asking.amiss()


def has_stores(batch: Batch) -> bool:
    return any(isinstance(record, Stored) for record in batch.records)
