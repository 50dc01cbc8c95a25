"""Dividing the cap and quotas over partitions: the I/O for `core.protocol.budgets`.

Every indexer follows what partitions use and what the division in force is, and tells the partitions that
it folds; who owns partition 0 of a generation writes that generation's division, each on condition that
nobody has written since the one it replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from inferencecache.core.log import (
    ApiError,
    Bucket,
    Entry,
    Gone,
    Log,
    NoAnswerError,
    NotStoredError,
    WrongLastSequenceError,
)
from inferencecache.core.log.subjects import AGGREGATE, budget_key, partition_key
from inferencecache.core.protocol.budgets import Divider
from inferencecache.core.service import get_logger
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.schemas.budgets import Division, PartitionUse
from inferencecache.schemas.unreadable import UNREADABLE

INTERVAL_S: Final = 1.0

_Kind = TypeVar("_Kind")

logger = get_logger("indexer")


class _Count(msgspec.Struct):
    """What of a partition's count concerns its use."""

    use: PartitionUse | None = None


class _Generation:
    """One generation's partitions, and the division in force under its revision in the bucket."""

    def __init__(self, partitions: int) -> None:
        self.divider = Divider(partitions)
        self.division: Division | None = None
        self.revision = 0


class Dividing:
    """Divides for the generations of `partitions`, which are those that are kept at the time."""

    def __init__(self, log: Log, partitions: Sequence[PartitionIndexer]) -> None:
        self._bucket = Bucket(log, AGGREGATE)
        self._partitions = partitions
        self._generations: dict[int, _Generation] = {}
        self._values: dict[str, Entry] = {}
        """What has changed, by key, since it was last looked at."""

    async def run(self) -> None:
        """Divide once a second, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bucket.watch(self._changed).run())
            group.create_task(self._divide_each_second())

    def _changed(self, change: Entry | Gone) -> None:
        if isinstance(change, Entry):
            self._values[change.key] = change
        else:
            self._values[change.key] = Entry(change.key, b"", 0)

    async def _divide_each_second(self) -> None:
        while True:
            self._take_values()
            for partition in list(self._partitions):  # while one is written, the layout may change
                generation = self._generations[partition.generation]
                partition.division_read(generation.division)
                state = partition.state
                if partition.number == 0 and partition.owned and state is not None:
                    made = generation.divider.divide(
                        generation.division, partition.max_entries, state.folding.fold.policy
                    )
                    if made is not None:
                        await self._write(partition.generation, made, generation.revision)
            await asyncio.sleep(INTERVAL_S)

    def _take_values(self) -> None:
        """Those of generations that are not kept yet stay for later.

        A key that is gone went with the bucket: what is there is read after that.
        """
        kept = {partition.generation: partition.partitions for partition in self._partitions}
        for number in self._generations.keys() - kept.keys():
            del self._generations[number]
        for number, partitions in kept.items():
            generation = self._generations.setdefault(number, _Generation(partitions))
            keys = [budget_key(number), *(partition_key(number, each) for each in range(partitions))]
            if any(key in self._values and not self._values[key].value for key in keys):
                generation.divider.lost()
            if (entry := self._values.pop(budget_key(number), None)) is not None:
                generation.division, generation.revision = _decode(entry, Division), entry.revision
        for partition in self._partitions:
            if (entry := self._values.pop(partition.key, None)) is not None:
                count = _decode(entry, _Count)
                if count is not None and count.use is not None:
                    self._generations[partition.generation].divider.used(partition.number, count.use)

    async def _write(self, generation: int, division: Division, revision: int) -> None:
        key, value = budget_key(generation), msgspec.json.encode(division)
        try:
            if revision:
                await self._bucket.update(key, value, revision)
            else:
                await self._bucket.create(key, value)
        except (WrongLastSequenceError, NotStoredError, ApiError, NoAnswerError) as error:
            logger.warning("budget_not_divided", key=key, error=str(error))
        else:
            logger.info("budget_divided", key=key, number=division.number)


def _decode(entry: Entry, kind: type[_Kind]) -> _Kind | None:
    """None of a key that is gone, and of a value that cannot be read, which the next one replaces."""
    if not entry.value:
        return None
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except UNREADABLE as error:
        logger.warning("aggregate_unreadable", key=entry.key, error=str(error))
        return None
