"""The log is cut below an indexer that lags: it notices, and what it missed comes from a newer snapshot, or
the index is built anew from producers.
"""

from __future__ import annotations

from tests.faults.conftest import Staged
from tests.support.fleet.injector import cut_log, stopped
from tests.support.fleet.processes import NATS, Fleet
from tests.support.fleet.requests import fresh_snapshot
from tests.support.waiting import eventually

METRIC = "inferencecache_indexer_"


async def test_a_lagging_indexer_goes_on_from_a_newer_snapshot(staged: Staged) -> None:
    async with staged() as scene:
        fleet, copy = scene.fleet, scene.witness.partitions[scene.partition]
        owner = scene.owner(scene.partition)
        [laggard] = set(fleet.running("indexer")) - {owner}
        before = await restorations(fleet, laggard, copy.key)
        async with stopped(fleet, laggard):
            await fleet.restart(NATS)  # or what it has asked for would still reach it
            await scene.under_load()
            refs = await fresh_snapshot(scene.witness, copy)
            assert refs.current is not None
            await cut_log(scene.witness, copy.events, below=refs.current.log.sequence)
            await scene.under_load()
        await eventually(lambda: '"reason": "cut"' in fleet.said(laggard), within_s=30)
        await fleet.ready(laggard)
        after = await restorations(fleet, laggard, copy.key)
        assert after[0] > before[0]
        assert after[1] == before[1], "the log itself was folded, which had a hole"
        await fleet.kill(owner)
        await eventually(lambda: scene.owner(scene.partition) == laggard, within_s=30)
        await fleet.start(owner)
        await scene.settle()
        assert not scene.asking.amiss()


async def test_without_a_newer_snapshot_the_index_is_built_anew_from_producers(staged: Staged) -> None:
    async with staged() as scene:
        fleet, copy = scene.fleet, scene.witness.partitions[scene.partition]
        epoch = copy.claims[-1].claim.log_epoch
        async with stopped(fleet, *fleet.running("indexer")):
            await fleet.restart(NATS)
            await scene.under_load()
            await cut_log(scene.witness, copy.events, below=copy.messages[-1].position.sequence)
        await eventually(lambda: copy.claims[-1].claim.log_epoch != epoch, within_s=60)
        assert all('"reason": "cut"' in fleet.said(name) for name in fleet.running("indexer"))
        await scene.under_load()
        await scene.settle()
        assert not scene.asking.amiss()


async def restorations(fleet: Fleet, indexer: str, partition: str) -> tuple[float, float]:
    """How often an indexer has restored a partition, and how often of these from the log alone."""
    names = ("restorations_total", "restorations_from_log_total")
    one, other = [await fleet.metric(indexer, METRIC + name, partition=partition) for name in names]
    return one, other
