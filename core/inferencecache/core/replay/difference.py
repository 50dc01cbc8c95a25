"""How two points of a partition's log differ: what each replica came to hold, lost, or holds otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from inferencecache.core.index.contents import Contents, contents_difference, contents_of
from inferencecache.core.index.fold import Fold
from inferencecache.core.replay.filters import Filter
from inferencecache.core.replay.state import PartitionState, state_of
from inferencecache.schemas.deltas import HolderName


class Standpoint:
    """A state that is kept while the fold moves on."""

    def __init__(self, partition: int, fold: Fold, only: Filter) -> None:
        self.state = state_of(partition, fold, only)
        self.contents: Mapping[HolderName, Contents] = {
            name: contents for name, contents in contents_of(fold.view).items() if only.takes(name)
        }


class HolderDifference(msgspec.Struct, frozen=True, rename="camel"):
    """Index keys in hexadecimal, which are the hashes themselves where the width class is 8. `changed`: with
    another token count or tier, or of another certainty.
    """

    tenant: str
    model: str
    scheme: str
    adapter: str
    width: int
    replica: str
    came: tuple[str, ...]
    left: tuple[str, ...]
    changed: tuple[str, ...]


class PartitionDifference(msgspec.Struct, frozen=True, rename="camel"):
    """From one state to another; holders that hold the same are left out."""

    before: PartitionState
    after: PartitionState
    holders: tuple[HolderDifference, ...]


def difference(before: Standpoint, after: Standpoint) -> PartitionDifference:
    """What changed between two standpoints of one partition."""
    return PartitionDifference(before.state, after.state, tuple(_holders(before, after)))


def _holders(before: Standpoint, after: Standpoint) -> Iterator[HolderDifference]:
    names = before.contents.keys() | after.contents.keys()
    for name in sorted(names, key=msgspec.structs.astuple):
        found = contents_difference(before.contents.get(name), after.contents.get(name))
        if not found.is_empty:
            came, left, changed = (tuple(f"{key:016x}" for key in keys.tolist()) for keys in found)
            space = name.tenant, name.model, name.scheme, name.adapter, name.width
            yield HolderDifference(*space, name.replica, came, left, changed)
