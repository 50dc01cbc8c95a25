"""Asking producers to begin anew: the same request to the same replica again only after a while.

Every batch that is dropped says that its sender should be asked, at the sender's full rate; one request
is in flight at a time, and is repeated while there is still reason for it.
"""

from __future__ import annotations

from typing import Final

from inferencecache.core.index.fold import ResyncWanted
from inferencecache.schemas.deltas import ReplicaName
from inferencecache.schemas.requests import ResyncRequest

REPEAT_S: Final = 2.0
_MOST_REMEMBERED: Final = 10_000


class Resyncs:
    """What was asked lately. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._asked: dict[ReplicaName, tuple[float, ResyncRequest]] = {}

    def should_ask(self, now: float, wanted: ResyncWanted) -> bool:
        """Is it time to send this request? Answering yes counts as sending it."""
        name = ReplicaName(wanted.tenant, wanted.model, wanted.replica)
        asked = self._asked.get(name)
        if asked is not None and asked[1] == wanted.request and now - asked[0] < REPEAT_S:
            return False
        if len(self._asked) >= _MOST_REMEMBERED:
            self._asked = {key: each for key, each in self._asked.items() if now - each[0] < REPEAT_S}
        self._asked[name] = (now, wanted.request)
        return True
