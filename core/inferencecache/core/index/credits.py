"""Accesses that a router's hints made, until they travel to the log as `Credit` records.

In a tenant that evicts what is used least, each hold that served a delivered hint is credited with one
access [IDX-144, WIRE-079]. Counting them is cheap and bounded, since lookups do it; adding them up is
for a thread, once a second. What does not fit is not credited: credits are best effort [IDX-147].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from inferencecache.core.index.keys import Keys, chain_keys, key_of
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import Decision
from inferencecache.schemas.deltas import HolderName
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.records import CreditedHolds

MOST_PENDING: Final = 1 << 19
"""Accesses that wait; they take 4 MiB."""

Pending = Mapping[HolderName, list[Keys]]


class Credits:
    """Accesses since the last `take`; `dropped` counts those that did not fit."""

    def __init__(self, most: int = MOST_PENDING) -> None:
        self.dropped = 0
        self._most = most
        self._count = 0
        self._pending: dict[HolderName, list[Keys]] = {}

    def add(self, request: RouteRequest, decision: Decision) -> None:
        """Credit what contributed to the match of each replica of a delivered answer [IDX-145]."""
        inputs = decision.inputs
        if decision.reason is not Reason.PREFIX_MATCH or inputs is None:
            return
        if not inputs.hashes:
            width, key = key_of(inputs.exact)
            for score in decision.scores:
                if score.matched_tokens > 0:
                    self._add(request, width, score.replica, np.array((key,), np.uint64))
            return
        longest = max(score.blocks for score in decision.scores)
        widths, keys = chain_keys(inputs.hashes[:longest])
        for score in decision.scores:
            if len(widths) == 1:
                self._add(request, widths[0], score.replica, keys[: score.blocks])
                continue
            of_run = np.array(widths[: score.blocks])
            for width in set(widths[: score.blocks]):
                self._add(request, width, score.replica, keys[: score.blocks][of_run == width])

    @property
    def waiting(self) -> int:
        """Accesses since the last `take`."""
        return self._count

    @property
    def most(self) -> int:
        return self._most

    def take(self) -> Pending:
        """What there is; from now on it is the caller's, for `summed`."""
        pending, self._pending, self._count = self._pending, {}, 0
        return pending

    def _add(self, request: RouteRequest, width: int, replica: ReplicaId, keys: Keys) -> None:
        if self._count + len(keys) > self._most:
            self.dropped += len(keys)
            return
        self._count += len(keys)
        holder = HolderName(request.tenant, request.model, request.scheme, request.adapter, width, replica)
        self._pending.setdefault(holder, []).append(keys)


def summed(pending: Pending, most_keys: int) -> Iterator[CreditedHolds]:
    """The accesses by hold, at most `most_keys` keys an item."""
    for holder, accesses in pending.items():
        keys, counts = np.unique(np.concatenate(accesses), return_counts=True)
        for start in range(0, len(keys), most_keys):
            end = start + most_keys
            yield CreditedHolds(
                holder.tenant,
                holder.model,
                holder.scheme,
                holder.adapter,
                holder.width,
                holder.replica,
                keys[start:end].astype("<u8").tobytes(),
                counts[start:end].astype("<u4").tobytes(),
            )
