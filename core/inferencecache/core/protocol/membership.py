"""Who is there, judged by the observer's own clock, and whose a partition should be.

A member is alive while new revisions of its row keep coming. Clocks of other machines do not matter,
and a row that a reopened watch shows again under the same revision proves nothing new. No member at
all means that nothing is known, never that nobody is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.members import IndexerMember, Member

ALIVE_S: Final = 3.0
SETTLE_S: Final = 2.5
"""Rows come each second: after this time everybody who is alive has written again."""


class _Row(msgspec.Struct):
    revision: int
    seen_at: float
    member: Member


class Membership:
    """All members, by their key in `IC_MEMBERS`. Times are seconds of the observer's monotonic clock."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._settled_at = 0.0

    def rows_lost(self, now: float) -> None:
        """The bucket is gone with its server: until all have written again, nothing is known."""
        self._settled_at = now + SETTLE_S

    def seen(self, now: float, key: str, revision: int, member: Member) -> None:
        """A row, as a watch delivered it."""
        row = self._rows.get(key)
        if row is None or row.revision != revision:
            self._rows[key] = _Row(revision, now, member)

    def gone(self, key: str) -> None:
        """The row was deleted: the member said goodbye, or its row expired."""
        self._rows.pop(key, None)

    def alive(self, now: float) -> list[Member]:
        """Members whose rows move; those that do not are forgotten in time."""
        for key in [key for key, row in self._rows.items() if now - row.seen_at > 10 * ALIVE_S]:
            del self._rows[key]
        return [row.member for row in self._rows.values() if now - row.seen_at <= ALIVE_S]

    def owner_of(self, partition: str, now: float) -> OwnerId | None:
        """Whose the partition should be: one of those that are caught up in it. None: nothing is known."""
        if now < self._settled_at:
            return None
        candidates = list(self._caught_up(partition, now))
        return max(candidates, key=lambda id_: (_weight(id_, partition), id_), default=None)

    def is_announced_by_others(self, partition: str, me: OwnerId, now: float) -> bool:
        """Is another indexer caught up in the partition?"""
        return any(id_ != me for id_ in self._caught_up(partition, now))

    def _caught_up(self, partition: str, now: float) -> Iterator[OwnerId]:
        for member in self.alive(now):
            if isinstance(member, IndexerMember):
                folded = member.partitions.get(partition)
                if folded is not None and folded.caught_up:
                    yield member.id


def _weight(id_: OwnerId, partition: str) -> int:
    """Rendezvous hashing: when a member comes or goes, only its own partitions move."""
    return xxh3_64_intdigest(f"{len(id_)}.{id_}{partition}".encode())
