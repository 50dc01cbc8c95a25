"""Putting the count of every owned partition into `IC_AGGREGATE`, every 5 s even when nothing changed.

Readers judge its age by when a revision arrives, so an unchanged count still says that somebody owns the
partition. What others wait for to divide the cap and quotas is put within a second. Only owners put; a put
that fails is made up by the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from inferencecache.core.index.aggregate import summarize
from inferencecache.core.log import Bucket, Log, NotStoredError, finds_no_stream
from inferencecache.core.log.subjects import AGGREGATE
from inferencecache.core.protocol.budgets import use_of
from inferencecache.core.service import get_logger
from inferencecache.indexer.partition import PartitionIndexer
from inferencecache.schemas.budgets import PartitionUse, Use

INTERVAL_S: Final = 5.0
LOOK_S: Final = 1.0
_PUT_LIMIT_S: Final = 2.0

logger = get_logger("indexer")


class Aggregating:
    """Puts the counts of those of `partitions` that are owned at the time. Where there is no bucket,
    `on_missing` is called.
    """

    def __init__(
        self, log: Log, partitions: Sequence[PartitionIndexer], *, on_missing: Callable[[], None]
    ) -> None:
        self._on_missing = on_missing
        self._bucket = Bucket(log, AGGREGATE)
        self._partitions = partitions
        self._put_last: dict[str, tuple[float, PartitionUse]] = {}

    async def run(self) -> None:
        """Put until cancelled."""
        while True:
            for partition in list(self._partitions):
                if partition.state is not None and partition.owned:
                    fold = partition.state.folding.fold
                    use = use_of(fold, partition.number, partition.partitions)
                    if self._is_due(partition.key, use):
                        count = msgspec.structs.replace(summarize(fold.view), use=use)
                        await self._put(partition.key, msgspec.json.encode(count))
                        self._put_last[partition.key] = (time.monotonic(), use)
            await asyncio.sleep(LOOK_S)

    def _is_due(self, key: str, use: PartitionUse) -> bool:
        if key not in self._put_last:
            return True
        put_at, before = self._put_last[key]
        return time.monotonic() - put_at > INTERVAL_S - LOOK_S / 2 or _awaited(use) != _awaited(before)

    async def _put(self, key: str, value: bytes) -> None:
        try:
            await self._bucket.put(key, value, timeout_s=_PUT_LIMIT_S)
        except NotStoredError as error:
            logger.warning("aggregate_not_put", partition=key, error=str(error))
            if finds_no_stream(error):
                self._on_missing()


def _awaited(use: PartitionUse) -> tuple[object, ...]:
    """What parts depend on, but for the mere number of what is held."""

    def of(each: Use) -> tuple[int, bool]:
        return each.evicted, each.held > each.part

    quotas = {tenant: of(each) for tenant, each in use.quotas.items()}
    return use.owner_epoch, use.division, use.policy, of(use.cap), quotas
