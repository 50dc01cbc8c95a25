"""Everything that is held, holder by holder, and how two such contents differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inferencecache.core.index.keys import Keys
from inferencecache.core.index.table import Counts, Marks
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import HolderName

_COLUMN = 1 << 15


class Contents(NamedTuple):
    """What one holder holds: keys ascending, with their token counts and marks as the table has them."""

    keys: Keys
    token_counts: Counts
    marks: Marks


class ContentsDifference(NamedTuple):
    """Keys that came, that left, and that stayed with another token count, tier or certainty."""

    came: Keys
    left: Keys
    changed: Keys

    @property
    def is_empty(self) -> bool:
        return not any(map(len, self))


_NOTHING = Contents(np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, np.uint32))


def contents_of(view: View) -> dict[HolderName, Contents]:
    """A copy of what is held; one pass over all of it."""
    numbers = np.arange(view.table.most_holders, dtype=np.int32)
    columns = [
        [column.copy() for column in (part.owners, part.keys, part.token_counts, part.marks)]
        for part in view.table.export(numbers, _COLUMN)
    ]
    if not columns:
        return {}
    owners, keys, token_counts, marks = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((keys, owners))
    owners, keys, token_counts, marks = owners[order], keys[order], token_counts[order], marks[order]
    first, starts = np.unique(owners, return_index=True)
    ends = [*starts[1:].tolist(), len(owners)]
    return {
        view.holders.by_number[number].name: Contents(
            keys[start:end], token_counts[start:end], marks[start:end]
        )
        for number, start, end in zip(first.tolist(), starts.tolist(), ends, strict=True)
    }


def contents_difference(before: Contents | None, after: Contents | None) -> ContentsDifference:
    """What changed for one holder; `None` holds nothing."""
    before, after = before or _NOTHING, after or _NOTHING
    stayed, of_before, of_after = np.intersect1d(
        before.keys, after.keys, assume_unique=True, return_indices=True
    )
    is_changed = before.token_counts[of_before] != after.token_counts[of_after]
    is_changed |= before.marks[of_before] != after.marks[of_after]
    return ContentsDifference(
        np.setdiff1d(after.keys, before.keys, assume_unique=True),
        np.setdiff1d(before.keys, after.keys, assume_unique=True),
        stayed[is_changed],
    )
