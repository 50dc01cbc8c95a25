"""Putting the count of every owned partition into `IC_AGGREGATE`, every 5 s even when nothing changed.

Readers judge its age by when a revision arrives, so an unchanged count still says that somebody owns the
partition. Only owners put; a put that fails is made up by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from inferencecache.core.index.aggregate import summarize
from inferencecache.core.log import Bucket, Log, NotStoredError
from inferencecache.core.log.subjects import AGGREGATE
from inferencecache.core.service import get_logger
from inferencecache.indexer.partition import PartitionIndexer

INTERVAL_S: Final = 5.0
_PUT_LIMIT_S: Final = 2.0

logger = get_logger("indexer")


class Aggregating:
    """Puts the counts of those of `partitions` that are owned at the time."""

    def __init__(self, log: Log, partitions: Sequence[PartitionIndexer]) -> None:
        self._bucket = Bucket(log, AGGREGATE)
        self._partitions = partitions

    async def run(self) -> None:
        """Put until cancelled."""
        while True:
            for partition in self._partitions:
                if partition.state is not None and partition.owned:
                    count = summarize(partition.state.folding.fold.view)
                    await self._put(partition.key, msgspec.json.encode(count))
            await asyncio.sleep(INTERVAL_S)

    async def _put(self, key: str, value: bytes) -> None:
        try:
            await self._bucket.put(key, value, timeout_s=_PUT_LIMIT_S)
        except NotStoredError as error:
            logger.warning("aggregate_not_put", partition=key, error=str(error))
