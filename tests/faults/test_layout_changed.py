"""The layout changes from 2 to 4 partitions under load: no lookup fails, and views are equal afterwards."""

from __future__ import annotations

from tests.faults.conftest import Staged
from tests.support.fleet.requests import prune_layouts, set_partitions
from tests.support.waiting import eventually


async def test_no_lookup_fails_and_views_are_equal_afterwards(staged: Staged) -> None:
    async with staged() as scene:
        fleet, witness = scene.fleet, scene.witness
        before = witness.layout
        assert before.partitions == 2
        await set_partitions(fleet, 4)
        await eventually(lambda: witness.layout.generation > before.generation, within_s=30)
        assert witness.layout.partitions == len(witness.partitions) == 4
        await scene.under_load()

        async def is_pruned() -> bool:
            return await prune_layouts(fleet)

        await eventually(is_pruned, within_s=60, what="that no router needs the earlier generation")
        await scene.under_load()
        await scene.settle()
        assert not scene.asking.amiss()
