"""The server's storage is an older copy, has lost its tail, or is gone: the index is right again, and until
then routers answer from what they knew.
"""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

from tests.faults.conftest import Staged
from tests.support.fleet.injector import bring_back_storage, copy_storage, lose_storage, lose_tail
from tests.support.fleet.scene import Scene
from tests.support.waiting import eventually


async def test_an_older_copy_of_the_storage_is_noticed(staged: Staged, tmp_path: Path) -> None:
    async with staged() as scene:
        await copy_storage(scene.fleet, tmp_path / "copy")
        await scene.under_load()
        await noticed(scene, bring_back_storage(scene.fleet, tmp_path / "copy"))


async def test_a_lost_tail_of_the_log_is_noticed(staged: Staged) -> None:
    async with staged() as scene:
        await scene.under_load()
        await noticed(scene, lose_tail(scene.fleet, scene.witness.partitions[scene.partition].events))


async def test_after_all_storage_is_lost_a_new_log_epoch_begins(staged: Staged) -> None:
    async with staged() as scene:
        copy = scene.witness.partitions[scene.partition]
        epochs = {claimed.claim.log_epoch for claimed in copy.claims}
        await noticed(scene, lose_storage(scene.fleet))
        assert copy.claims[-1].claim.log_epoch not in epochs


async def noticed(scene: Scene, fault: Awaitable[None]) -> None:
    """Inject the fault; what was stored is no longer there, and in the end all is well."""
    copy = scene.witness.partitions[scene.partition]
    losses, requests = len(copy.losses), await resyncs(scene)
    await fault
    await eventually(lambda: len(copy.losses) > losses, within_s=60, what="a loss of the log")
    assert {lost.reason for lost in copy.losses[losses:]} & {"storage_lost", "no_stream"}
    await scene.under_load()
    await scene.settle(same_storage=False)
    assert await resyncs(scene) > requests
    assert not scene.asking.amiss()


async def resyncs(scene: Scene) -> float:
    """How often sidecars were asked to begin anew."""
    name = "inferencecache_indexer_resync_requests_total"
    return sum([await scene.fleet.metric(each, name) for each in scene.fleet.running("indexer")])
