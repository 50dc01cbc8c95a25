"""Which holds, or keys, go first.

The order of eviction is total and moves all the time: a store, a credit or an `Alive` changes the place of
what it touches, and of an `Alive` that is everything a replica holds. So nothing is kept in order as a
whole. A queue knows the first few per cent, all that is not behind its *bound*, in a heap. What moves
forward, or comes in, and is not behind the bound is offered to it; what moves back is found to have done
so when its turn comes. When the heap is used up, one pass over the candidates finds the next bound and
its heap: the evictions that the heap serves pay for the pass, and only they need memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferencecache.core.index import kernels
from inferencecache.core.index.holders import Holder
from inferencecache.core.index.kernels import Difference
from inferencecache.core.index.keys import Keys
from inferencecache.core.index.table import Counts, RemovedColumns
from inferencecache.core.index.view import View
from inferencecache.schemas.ids import TenantId

_SAMPLE: Final = 512
_RANK: Final = 16
"""The bound is the order of this rank in a sample: a heap takes about a 32nd of the candidates."""
_ALL: Final = 1 << 13
"""Of up to so many candidates the heap takes all."""
_COLUMN: Final = 1 << 12
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_TIME: Final = np.iinfo(np.int64)


class Removed(NamedTuple):
    """Holds that were removed and what that changed; `victims` counts what was asked for, holds or keys."""

    columns: RemovedColumns
    difference: Difference
    victims: int


class VictimQueue:
    """The order of eviction of all holds, or of the keys of the tenant named."""

    def __init__(self, view: View, tenant: TenantId | None) -> None:
        self._view = view
        self._table = view.table
        self._tenant = tenant
        self._bound = np.zeros(1, kernels.ORDER)
        self._state = np.zeros(3, np.int64)
        self._columns = RemovedColumns.room(_COLUMN)
        self.reset()

    def reset(self) -> None:
        """Know nothing: the order of what is in the table changed in ways that were not offered."""
        self._heap: NDArray[np.void] = np.zeros(1, kernels.ORDER)
        self._size = 0
        self._most = 0
        self._set_bound(_TIME.min, 0)

    def _set_bound(self, seen_us: int, count: int) -> None:
        label = _TIME.max if count else _TIME.min
        self._bound[0] = (seen_us, label, 0, label, count, 0)
        self._note_bound()

    def _note_bound(self) -> None:
        self._latest_us = int(self._bound[0]["seen"])
        self._is_counting = bool(self._bound[0]["count"])

    def may_admit(self, seen_us: int) -> bool:
        """Might something seen then lie before the bound?"""
        return seen_us <= self._latest_us or self._is_counting

    def offer(self, holder: int, keys: Keys) -> None:
        """These holds of a holder, or these keys, came in or may have moved forward."""
        size = self._size + len(keys)
        if size > self._most:
            if self._most:
                self.reset()
            return
        if size >= len(self._heap):
            more = np.zeros(2 * size + 1, kernels.ORDER)
            more[: len(self._heap)] = self._heap
            self._heap = more
        self._size = kernels.offer(
            *self._table.arrays, self._number, holder, keys, self._heap, self._size, self._bound
        )

    def take(self, most: int, most_holds: int) -> Iterator[Removed]:
        """Remove the first `most` holds or keys, if there are so many, until `most_holds` holds are gone; a
        key goes as a whole. To be read to its end.
        """
        columns = self._room()
        while most > 0 and most_holds > 0:
            if not self._size and not self._fill():
                return
            self._state[0] = self._size
            difference: Difference = kernels.evict(
                *self._table.arrays,
                self._number,
                most,
                most_holds,
                self._heap,
                self._bound,
                self._state,
                *columns,
            )
            self._size, victims, holds = self._state.tolist()
            most -= victims
            most_holds -= holds
            if holds:
                yield Removed(columns.first(holds), difference, victims)

    def _room(self) -> RemovedColumns:
        """Columns for many victims, at least for one key's holds."""
        if len(self._columns.keys) < self._table.most_holders:
            self._columns = RemovedColumns.room(2 * self._table.most_holders)
        return self._columns

    @property
    def _number(self) -> int:
        """The tenant's number, as long as it holds anything."""
        if self._tenant is None:
            return kernels.ANY
        tenant = self._view.holders.tenants.get(self._tenant)
        return kernels.NOBODY if tenant is None else tenant.number

    def _candidates(self) -> Counts:
        """All holds in question: by the lists of holders when these are shorter than the pool."""
        tenant = self._tenant and self._view.holders.tenants.get(self._tenant)
        if tenant and tenant.entries * 8 < len(self._table):
            return self._table.nodes_of_holders(tenant.holders, tenant.entries)
        return self._table.nodes_of(self._number)

    def _fill(self) -> bool:
        """Find the next bound and all that is not behind it; answers whether there is anything."""
        candidates = self._candidates()
        count = len(candidates)
        if count <= _ALL:
            self._set_bound(_TIME.max, 0xFFFFFFFF)
        else:
            sample = np.zeros(_SAMPLE + 1, kernels.ORDER)
            kernels.choose_bound(
                *self._table.arrays, self._number, candidates, _RANK, _STEP, sample, self._bound
            )
            self._note_bound()
        size = -1
        for room in (count // 8 + _ALL, count):
            if size < 0:
                self._heap = np.zeros(room + 1, kernels.ORDER)
                size = kernels.collect(*self._table.arrays, self._number, candidates, self._heap, self._bound)
        self._size = size
        self._most = 4 * size + _ALL
        return size > 0


class Victims:
    """The queue of all holds, for the cap, and one of keys for each tenant whose quota binds."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.restart()

    def restart(self) -> None:
        """The view's table is another one."""
        self._of_cap = VictimQueue(self._view, None)
        self._of_tenant: dict[str, VictimQueue] = {}

    def reset(self) -> None:
        """The order changed in ways that are not told one by one."""
        self._of_cap.reset()
        for queue in self._of_tenant.values():
            queue.reset()

    def holds(self, most: int) -> Iterator[Removed]:
        """Remove the holds that the cap evicts first [IDX-152]."""
        return self._of_cap.take(most, most)

    def keys(self, tenant: TenantId, most: int, most_holds: int) -> Iterator[Removed]:
        """Remove the keys that the tenant's quota evicts first, with all their holds, until so many holds
        are gone [IDX-158].
        """
        queue = self._of_tenant.get(tenant)
        if queue is None:
            queue = self._of_tenant[tenant] = VictimQueue(self._view, tenant)
        return queue.take(most, most_holds)

    def keep(self, tenants: Container[str]) -> None:
        """Only these tenants have a quota."""
        self._of_tenant = {name: queue for name, queue in self._of_tenant.items() if name in tenants}

    # ------------------------------------------------------------------------------ what moved

    def held(self, holder: Holder, keys: Keys, seen_us: int) -> None:
        """The holder stored these keys."""
        if self._of_cap.may_admit(seen_us):
            self._of_cap.offer(holder.number, keys)
        queue = self._of_tenant.get(holder.name.tenant)
        if queue is not None and queue.may_admit(seen_us):
            queue.offer(holder.number, keys)

    def aged(self, holder: Holder, keys: Keys) -> None:
        """The holder's holds of these keys are older than they were."""
        self._of_cap.offer(holder.number, keys)
        queue = self._of_tenant.get(holder.name.tenant)
        if queue is not None:
            queue.offer(holder.number, keys)

    def released(self, holder: Holder, keys: Keys) -> None:
        """The holder no longer holds these keys; others may, and are then the freshest."""
        queue = self._of_tenant.get(holder.name.tenant)
        if queue is not None:
            queue.offer(holder.number, keys)

    def watches(self, tenant: str) -> bool:
        """Does anybody want to know what is released?"""
        return tenant in self._of_tenant
