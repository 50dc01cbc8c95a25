"""The flat table: who holds which key, as arrays that kernels work on.

The table knows numbers only. A *holder* is a keyspace and a replica, interned by whoever owns the table
(`holders.py`); a hold is one key of one holder. It never shrinks and, given a capacity that suffices,
never grows: 40 bytes a hold in the pool of nodes and at most 8 in the slots, of which the operating
system backs with memory what has been touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferencecache.core.index import kernels
from inferencecache.core.index.kernels import Difference
from inferencecache.core.index.keys import Keys

NO_CHANGE: Final[Difference] = (0, 0, 0, 0)

Counts = NDArray[np.int32]
Marks = NDArray[np.uint32]
Times = NDArray[np.int64]
Totals = NDArray[np.int64]
_FIRST_HOLDERS: Final = 64


Found = tuple[int, int, int, int]
"""A replica's number with three figures about what it holds."""


class Columns(NamedTuple):
    """Holds, column by column, as they are stored: `marks` are twice the tier, plus 1 if uncertain."""

    owners: Counts
    keys: Keys
    seen_us: Times
    token_counts: Counts
    marks: Marks

    @classmethod
    def room(cls, most: int) -> Columns:
        """Columns to write into."""
        return cls(
            np.zeros(most, np.int32),
            np.zeros(most, np.uint64),
            np.zeros(most, np.int64),
            np.zeros(most, np.int32),
            np.zeros(most, np.uint32),
        )

    def first(self, count: int) -> Columns:
        """Their first elements, not copied."""
        owners, keys, seen_us, token_counts, marks = self
        return Columns(owners[:count], keys[:count], seen_us[:count], token_counts[:count], marks[:count])


class AccessColumns(NamedTuple):
    """Access counts of holds."""

    owners: Counts
    keys: Keys
    accesses: Marks

    @classmethod
    def room(cls, most: int) -> AccessColumns:
        """Columns to write into."""
        return cls(np.zeros(most, np.int32), np.zeros(most, np.uint64), np.zeros(most, np.uint32))

    def first(self, count: int) -> AccessColumns:
        """Their first elements, not copied."""
        return AccessColumns(self.owners[:count], self.keys[:count], self.accesses[:count])


class RemovedColumns(NamedTuple):
    """Holds that are gone; `vanished` is 1 where nobody else held the key."""

    owners: Counts
    keys: Keys
    vanished: Counts

    @classmethod
    def room(cls, most: int) -> RemovedColumns:
        """Columns to write into."""
        return cls(np.zeros(most, np.int32), np.zeros(most, np.uint64), np.zeros(most, np.int32))

    def first(self, count: int) -> RemovedColumns:
        """Their first elements, not copied."""
        return RemovedColumns(self.owners[:count], self.keys[:count], self.vanished[:count])


class HoldTable:
    """Holds by (keyspace, key) and by holder. `is_indexer` adds what only the fold needs of a hold."""

    def __init__(self, capacity: int, *, is_indexer: bool = False) -> None:
        self._is_indexer = is_indexer
        self._counts = np.zeros(kernels.COUNTS, np.int64)
        self._counts[kernels.FREE] = kernels.NONE
        self._nodes = np.zeros(0, kernels.NODE)
        self._access = np.zeros(0, np.uint32)
        self._due = np.zeros(0, np.int64)
        self._holders = np.zeros(_FIRST_HOLDERS, kernels.HOLDER)
        self._free_holders: list[int] = []
        self._used_holders = 0
        self._places = np.full(_FIRST_HOLDERS, kernels.NONE, np.int32)
        self._replicas = np.zeros(_FIRST_HOLDERS, np.int32)
        self._found = np.zeros(3 * _FIRST_HOLDERS + 1, np.int64)
        self._size_pool(max(1, capacity))

    def __len__(self) -> int:
        """The number of holds."""
        return int(self._counts[kernels.ENTRIES])

    @property
    def used_bytes(self) -> int:
        """Bytes of the arrays, without the part of the pool that was never used."""
        per_node = kernels.NODE.itemsize + (self._access.itemsize if self._is_indexer else 0)
        return int(self._counts[kernels.USED]) * per_node + self._slots.nbytes + self._due.nbytes

    def _size_pool(self, capacity: int) -> None:
        """Make room for `capacity` holds and place those there are."""
        nodes = np.zeros(capacity, kernels.NODE)
        nodes[: len(self._nodes)] = self._nodes
        self._nodes = nodes
        if self._is_indexer:
            access = np.zeros(capacity, np.uint32)
            access[: len(self._access)] = self._access
            self._access = access
            due = np.full((capacity >> kernels.STRETCH_BITS) + 1, kernels.NEVER, np.int64)
            due[: len(self._due)] = self._due
            self._due = due
        self._slots = np.zeros(1 << (capacity * 7 // 4).bit_length(), np.uint32)
        kernels.place_all(self._nodes, self._holders, self._slots, self._counts)

    def reserve(self, holds: int) -> None:
        """Make room for so many more holds, in a pause if the capacity does not suffice."""
        needed = len(self) + holds
        if needed > len(self._nodes):
            self._size_pool(max(needed + needed // 4, 2 * len(self._nodes)))

    # ---------------------------------------------------------------------------------- holders

    def open_holder(self, identity: int, seed: int, keyspace: int, replica: int, alive_us: int) -> int:
        """A number for a holder, low ones first; `identity` and `seed` as the kernels say."""
        if self._free_holders:
            holder = self._free_holders.pop()
        else:
            holder = self._used_holders
            self._used_holders += 1
            if holder == len(self._holders):
                self._holders = np.concatenate([self._holders, np.zeros_like(self._holders)])
        if replica >= len(self._places):
            more = 2 * max(replica, len(self._places))
            self._places = np.full(more, kernels.NONE, np.int32)
            self._replicas = np.zeros(more, np.int32)
            self._found = np.zeros(3 * more + 1, np.int64)
        row = np.zeros((), kernels.HOLDER)
        row["identity"], row["seed"], row["keyspace"], row["replica"] = identity, seed, keyspace, replica
        row["alive"], row["first"] = alive_us, kernels.NONE
        self._holders[holder] = row
        return holder

    def close_holder(self, holder: int) -> None:
        """Give a number back; the holder holds nothing."""
        self._free_holders.append(holder)

    def holds_of(self, holder: int) -> int:
        """How many keys the holder holds."""
        return int(self._holders[holder]["count"])

    @property
    def most_holders(self) -> int:
        """No holder has this number or a higher one, and no key as many holders."""
        return self._used_holders

    def set_eviction(
        self, holder: int, *, tenant: int, ttl_us: int, is_lfu: bool, space_label: int, replica_label: int
    ) -> None:
        """What decides when the holder's holds are evicted."""
        row = self._holders[holder]
        row["tenant"], row["ttl"], row["lfu"] = tenant, ttl_us, is_lfu
        row["space_label"], row["replica_label"] = space_label, replica_label

    def set_alive(self, holder: int, alive_us: int) -> None:
        """Certain holds of the holder are at least as young as this."""
        self._holders[holder]["alive"] = alive_us

    # ---------------------------------------------------------------------------------- changes

    def hold(self, holder: int, keys: Keys, token_counts: Counts, tier: int, seen_us: int) -> Difference:
        """The holder holds these keys, certainly."""
        self.reserve(len(keys))
        return self._change(kernels.hold, holder, keys, token_counts, tier << 1, seen_us)

    def release(self, holder: int, keys: Keys) -> Difference:
        """The holder holds these keys no longer, if it did."""
        return self._change(kernels.release, holder, keys)

    def clear(self, holder: int) -> Difference:
        """The holder holds nothing any more."""
        return self._change(kernels.clear, holder)

    def doubt(self, holder: int) -> tuple[Keys, Difference]:
        """All that the holder holds now is uncertain; answers the keys that were not."""
        keys = np.zeros(self._holders[holder]["certain"], np.uint64)
        digest = int(kernels.doubt(self._nodes, self._holders, self._due, holder, keys)) if len(keys) else 0
        return keys, (0, 0, digest, 0)

    def age(self, holder: int) -> Keys:
        """What is certain of the holder may be older than it was; answers the keys."""
        keys = np.zeros(self._holders[holder]["certain"], np.uint64)
        kernels.age(self._nodes, self._holders, self._due, holder, keys)
        return keys

    def restamp(self, time_us: int) -> Difference:
        """Every hold was last seen at this time."""
        return 0, 0, int(kernels.restamp(self._nodes, self._holders, self._counts, time_us)), 0

    def uncertain_keys(self, holder: int) -> Keys:
        """The keys that the holder holds uncertainly."""
        row = self._holders[holder]
        keys = np.zeros(row["count"] - row["certain"], np.uint64)
        kernels.uncertain_keys(self._nodes, self._holders, holder, keys)
        return keys

    def _change(self, change: Callable[..., Difference], *arguments: object) -> Difference:
        difference: Difference = change(*self.arrays, *arguments)
        return difference

    @property
    def arrays(self) -> tuple[kernels.Array, ...]:
        """What kernels that change holds take first."""
        return self._nodes, self._holders, self._slots, self._access, self._due, self._counts

    # ---------------------------------------------------------------------------------- eviction

    def nodes_of(self, tenant: int) -> Counts:
        """The nodes of a tenant's holds, or of ANY tenant's, by a pass over the pool."""
        nodes = np.zeros(len(self), np.int32)
        return nodes[: kernels.gather(self._nodes, self._holders, self._counts, tenant, nodes)]

    def nodes_of_holders(self, holders: Iterable[int], most: int) -> Counts:
        """The nodes of holders that hold at most so many keys together, by their lists."""
        nodes, found = np.zeros(most, np.int32), 0
        for holder in holders:
            found = kernels.gather_holder(self._nodes, self._holders, holder, found, nodes)
        return nodes[:found]

    @property
    def stretches(self) -> int:
        """In how many stretches of the pool there may be holds."""
        return (int(self._counts[kernels.USED]) + kernels.STRETCH - 1) >> kernels.STRETCH_BITS

    def keys_of(self, holder: int) -> Keys:
        """What the holder holds."""
        nodes = self.nodes_of_holders((holder,), self.holds_of(holder))
        keys: Keys = self._nodes["key"][nodes]
        return keys

    def newest_us(self) -> Times:
        """When each holder last stored anything, by its number."""
        times = np.full(self._used_holders, np.iinfo(np.int64).min)
        kernels.newest(self._nodes, self._counts, times)
        return times

    def all_due(self) -> None:
        """Any hold may be past its time to live, whatever was known."""
        self._due[:] = np.iinfo(np.int64).min

    # -------------------------------------------------------------------------------------- bulk

    def export(self, index_of: Counts, most: int) -> Iterator[Columns]:
        """All holds, uncertain ones first, in columns of at most `most`.

        `index_of` turns the number of a holder into its owner's index. The arrays are used again for the
        next columns.
        """
        columns = Columns.room(most)
        for uncertain in (1, 0):
            places = np.append(index_of, np.int32(0))
            while places[-1] < self._counts[kernels.USED]:
                start = int(places[-1])
                written = kernels.export(self._nodes, self._counts, start, uncertain, places, *columns)
                if written:
                    yield columns.first(written)

    def export_access(self, index_of: Counts, most: int) -> Iterator[AccessColumns]:
        """As `export`, the access counts that are not 0."""
        columns = AccessColumns.room(most)
        places = np.append(index_of, np.int32(0))
        while self._is_indexer and places[-1] < self._counts[kernels.USED]:
            written = kernels.export_access(
                self._nodes, self._counts, self._access, int(places[-1]), places, *columns
            )
            yield columns.first(written)

    def load(self, number_of: Counts, columns: Columns, new: Totals, new_keys: Totals) -> Difference:
        """Take holds as `export` gave them; counts what is new by owner."""
        self.reserve(len(columns.keys))
        digest = int(kernels.load(*self.arrays, number_of, *columns, new, new_keys))
        return 0, 0, digest, 0

    def credit(self, owners: Counts, keys: Keys, accesses: Marks) -> Difference:
        """Add to the access counts of these keys of these holders; a hold that is gone is no error."""
        digest = int(kernels.credit(*self.arrays, owners, keys, accesses))
        return 0, 0, 0, digest

    # -------------------------------------------------------------------------------- questions

    def exact(self, keyspace: int, seed: int, key: int, oldest_us: int) -> list[Found]:
        """Who holds the key, seen later than `oldest_us`: (replica, token count, effective time, tier)."""
        hits = kernels.exact(
            self._nodes,
            self._holders,
            self._slots,
            keyspace,
            seed,
            key,
            oldest_us,
            self._replicas,
            self._found,
        )
        return self._read(hits)

    def leading_runs(self, keyspaces: Counts, seeds: Keys, keys: Keys, oldest_us: int) -> list[Found]:
        """Who holds the chain from its first key on: (replica, blocks, oldest effective time, coldest tier).

        Keyspaces and seeds are one for all keys or one each.
        """
        runs = kernels.leading_runs(
            self._nodes,
            self._holders,
            self._slots,
            keyspaces,
            seeds,
            keys,
            oldest_us,
            self._places,
            self._replicas,
            self._found,
        )
        return self._read(runs)

    def _read(self, found: int) -> list[Found]:
        replicas = self._replicas[:found].tolist()
        figures = self._found[: 3 * found].tolist()
        return list(zip(replicas, figures[::3], figures[1::3], figures[2::3], strict=True))
