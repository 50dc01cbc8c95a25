"""Who owns each partition, and how far behind the log it folds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from inferencecache.core.log import Log, NoStreamError, jetstream
from inferencecache.core.log.subjects import events_stream, partition_key
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.members import IndexerMember


class Owner(NamedTuple):
    """`indexer` is empty when nobody says that it owns the partition. `sequence` is the last message that it
    has folded, `last` the last one there is.
    """

    partition: str
    indexer: str
    lag_s: float = 0.0
    sequence: int = 0
    last: int = 0


async def read_owners(log: Log, layout: Layout, indexers: Iterable[IndexerMember]) -> tuple[Owner, ...]:
    """Of every partition of a generation. Raises ApiError, NoAnswerError."""
    rows = list(indexers)
    return tuple(
        await asyncio.gather(
            *(_read(log, layout.generation, each, rows) for each in range(layout.partitions))
        )
    )


async def _read(log: Log, generation: int, partition: int, indexers: list[IndexerMember]) -> Owner:
    """Behind by as long as the first message waits that was not folded at the owner's last word."""
    key, stream = partition_key(generation, partition), events_stream(generation, partition)
    try:
        info = await jetstream.stream_info(log, stream)
    except NoStreamError:
        return Owner(key, "")
    last = info.state.last_seq
    for indexer in indexers:
        folded = indexer.partitions.get(key)
        if folded is None or not folded.owner:
            continue
        first = max(folded.sequence + 1, info.state.first_seq)
        waiting = await jetstream.read_message(log, stream, sequence=first) if first <= last else None
        lag_s = max(0.0, (info.asked_ns - waiting.time_ns) / 1e9) if waiting is not None else 0.0
        return Owner(key, indexer.id, lag_s, folded.sequence, last)
    return Owner(key, "", last=last)
