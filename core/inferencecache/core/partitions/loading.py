"""Loading a snapshot: chunk by chunk from the object store, decoded in a thread, checked at every level."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.snapshot import SnapshotDecoder, UnreadableSnapshotError
from inferencecache.core.index.view import View
from inferencecache.core.log import Objects
from inferencecache.schemas.digests import digest_number
from inferencecache.schemas.positions import SnapshotRef

Into = TypeVar("Into", View, Fold)


async def load_snapshot(objects: Objects, ref: SnapshotRef, partition: str, into: Into) -> Into:
    """Fill an empty view or fold, which is nobody else's yet, with what the reference names.

    Raises ObjectMissingError, ObjectDamagedError, UnreadableSnapshotError: it is no base; NoAnswerError,
    ApiError: it is out of reach for now. Then `into` is void.
    """
    decoder = SnapshotDecoder(into)
    async for chunk in objects.read(ref.object):
        await asyncio.to_thread(decoder.feed, chunk)
    await asyncio.to_thread(decoder.finish)
    header = decoder.header
    if header is None or (header.partition, header.log_epoch, header.log, header.delta, header.digest) != (
        partition,
        ref.log_epoch,
        ref.log,
        ref.delta,
        digest_number(ref.digest),
    ):
        raise UnreadableSnapshotError("the snapshot is another one than its reference says")
    return into
