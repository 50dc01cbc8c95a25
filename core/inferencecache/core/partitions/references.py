"""A partition's references in `IC_REFS`: which snapshot is current, which was before."""

from __future__ import annotations

import msgspec

from inferencecache.core.log import Bucket, Log, WrongLastSequenceError
from inferencecache.core.log.subjects import REFS
from inferencecache.core.service import get_logger
from inferencecache.schemas.positions import Refs
from inferencecache.schemas.unreadable import UNREADABLE

logger = get_logger("partitions")


class References:
    """Reads and writes the references of one partition; `key` is its `<generation>.<partition>`."""

    def __init__(self, log: Log, key: str) -> None:
        self._bucket = Bucket(log, REFS)
        self._key = key

    async def read(self) -> tuple[Refs | None, int]:
        """The references and their revision, (None, 0) when there are none.

        Unreadable ones count as none, under their revision, so that a next snapshot replaces them.
        Raises ApiError, NoAnswerError.
        """
        entry = await self._bucket.get(self._key)
        if entry is None:
            return None, 0
        try:
            return msgspec.json.decode(entry.value, type=Refs), entry.revision
        except UNREADABLE as error:
            logger.warning("refs_unreadable", partition=self._key, error=str(error))
            return None, entry.revision

    async def write(self, refs: Refs, revision: int) -> bool:
        """Write if the revision is still this one; says whether these references are there now.

        Raises ApiError, NoAnswerError, NotStoredError.
        """
        value = msgspec.json.encode(refs)
        try:
            if revision:
                await self._bucket.update(self._key, value, revision)
            else:
                await self._bucket.create(self._key, value)  # also where somebody has deleted them
        except WrongLastSequenceError:
            entry = await self._bucket.get(self._key)  # ours, if only its acknowledgement was lost
            return entry is not None and entry.value == value
        return True
