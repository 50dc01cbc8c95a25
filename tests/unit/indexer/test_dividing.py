"""Dividing goes on whatever becomes of the partitions meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.log import Entry, Gone, Log
from inferencecache.indexer import dividing
from inferencecache.indexer.dividing import Dividing
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.schemas.budgets import Division, PartitionUse, Use
from tests.support.waiting import eventually

CAP = 20


class Partition:
    """One that this indexer owns, with what `Dividing` asks of it."""

    owned = True
    partitions = 2
    max_entries = CAP

    def __init__(self, generation: int, number: int) -> None:
        self.key = f"{generation}.{number}"
        self.generation = generation
        self.number = number
        self.state = self.folding = self
        self.fold = Fold(64)
        self.is_told = False

    def division_read(self, division: Division | None) -> None:
        self.is_told = True


class SlowBucket:
    """Partition 0 of generation 1 has no room left; what is written takes until `go_on`."""

    def __init__(self) -> None:
        self.writing, self.go_on = asyncio.Event(), asyncio.Event()

    def watch(self, changed: Callable[[Entry | Gone], None]) -> SlowBucket:
        for number, held in enumerate((CAP // 2, 0)):
            use = PartitionUse(1, 0, 0, Use(held, CAP // 2))
            changed(Entry(f"1.{number}", msgspec.json.encode({"use": use}), number + 1))
        return self

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def create(self, key: str, value: bytes) -> int:
        self.writing.set()
        await self.go_on.wait()
        return 3


async def test_a_layout_that_changes_while_a_division_is_written_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = SlowBucket()
    monkeypatch.setattr(dividing, "Bucket", lambda *_: bucket)
    monkeypatch.setattr(dividing, "INTERVAL_S", 0.0)
    partitions = [Partition(1, 0), Partition(1, 1)]
    running = asyncio.create_task(
        Dividing(cast("Log", None), cast("list[PartitionIndexer]", partitions)).run()
    )
    await bucket.writing.wait()
    partitions += [Partition(2, 0), Partition(2, 1)]
    bucket.go_on.set()
    await eventually(lambda: running.done() or all(each.is_told for each in partitions))
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
