"""Which sidecars speak, as a view says it: who has begun, who was heard of lately, how much each holds.

A change that makes every sidecar begin anew (another log epoch, another layout generation) is over
for readers when all that were alive before have begun in the new place and told about as much there.
Producers that speak gRPC never begin and are not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from inferencecache.core.index.reading import SILENT_US
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import ReplicaName

TELLING_WAIT_S: Final = 5.0
"""Longest wait for what replicas hold, once all have begun."""
_ENOUGH: Final = 0.9
"""Of what a replica held before: its engine evicts meanwhile, and reports over gRPC do not come along."""


def begun(view: View) -> Iterator[ReplicaName]:
    """The replicas whose sidecars have begun."""
    return (name for name, row in view.rows.items() if row.incarnation)


def alive(view: View) -> Iterator[ReplicaName]:
    """Those of them that were heard of lately, in log time."""
    since_us = view.time_us - SILENT_US
    return (name for name, row in view.rows.items() if row.incarnation and row.heard_us > since_us)


def held(view: View) -> Iterator[tuple[ReplicaName, int]]:
    """How many keys each replica with a row holds."""
    for replica in view.holders.replicas.values():
        if replica.row is not None:
            yield replica.name, sum(holder.entries for holder in replica.holders.values())


def have_told(
    replicas: Iterable[ReplicaName], before: Mapping[ReplicaName, int], now: Mapping[ReplicaName, int]
) -> bool:
    """Has each of the replicas told about as many keys as it held before?"""
    return all(now.get(name, 0) >= _ENOUGH * before[name] for name in replicas)
