"""The flat table against a dict, whatever is done to it in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inferencecache.core.index.digest import MASK, access_hash, entry_hash
from inferencecache.core.index.kernels import Difference
from inferencecache.core.index.keys import Keys
from inferencecache.core.index.table import Columns, HoldTable

REPLICAS, KEYSPACES = 4, 3
HOLDERS = range(REPLICAS * KEYSPACES)
# Few homes, so that probing, shifting back and wrapping around the table's end are common.
SEEDS = (0, 1, 2**64 - 1)
KEYS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


class Hold(NamedTuple):
    tokens: int
    seen: int
    tier: int
    uncertain: bool = False
    access: int = 0


def packed(keys: Iterable[int]) -> Keys:
    return np.array(list(keys), np.uint64)


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = HoldTable(1, is_indexer=True)
        self.holds: dict[tuple[int, int], Hold] = {}
        self.alive = dict.fromkeys(HOLDERS, 0)
        self.digest = self.access_digest = 0
        self.open()

    def open(self) -> None:
        for holder in HOLDERS:
            keyspace, replica = divmod(holder, REPLICAS)
            number = self.table.open_holder(1000 + holder, SEEDS[keyspace], keyspace, replica, 0)
            assert number == holder

    def keys_of_all(self) -> set[tuple[int, int]]:
        return {(holder // REPLICAS, key) for holder, key in self.holds}

    def expect(self, change: Callable[[], Difference], update: Callable[[], None]) -> None:
        entries, keys = len(self.holds), len(self.keys_of_all())
        difference = change()
        update()
        assert difference[:2] == (len(self.holds) - entries, len(self.keys_of_all()) - keys)
        self.digest = (self.digest + difference[2]) & MASK
        self.access_digest = (self.access_digest + difference[3]) & MASK

    @rule(holder=st.sampled_from(HOLDERS), keys=KEYS, seen=st.integers(-9, 9), tier=st.integers(1, 3))
    def hold(self, holder: int, keys: list[int], seen: int, tier: int) -> None:
        counts = list(range(len(keys)))

        def update() -> None:
            for key, count in zip(keys, counts, strict=True):
                before = self.holds.get((holder, key))
                self.holds[holder, key] = Hold(count, seen, tier, access=before.access if before else 0)

        column = np.array(counts, np.int32)
        self.expect(lambda: self.table.hold(holder, packed(keys), column, tier, seen), update)

    @rule(holder=st.sampled_from(HOLDERS), keys=KEYS)
    def release(self, holder: int, keys: list[int]) -> None:
        def update() -> None:
            for key in keys:
                self.holds.pop((holder, key), None)

        self.expect(lambda: self.table.release(holder, packed(keys)), update)

    @rule(holder=st.sampled_from(HOLDERS))
    def clear(self, holder: int) -> None:
        def update() -> None:
            self.holds = {at: hold for at, hold in self.holds.items() if at[0] != holder}

        self.expect(lambda: self.table.clear(holder), update)

    @rule(holder=st.sampled_from(HOLDERS))
    def doubt(self, holder: int) -> None:
        certain = {key for (of, key), hold in self.holds.items() if of == holder and not hold.uncertain}
        keys, difference = self.table.doubt(holder)
        assert sorted(keys.tolist()) == sorted(certain)
        self.expect(lambda: difference, lambda: None)
        for key in certain:
            self.holds[holder, key] = self.holds[holder, key]._replace(uncertain=True)
        uncertain = {key for (of, key), hold in self.holds.items() if of == holder and hold.uncertain}
        assert set(self.table.uncertain_keys(holder).tolist()) == uncertain

    @rule(holder=st.sampled_from(HOLDERS), keys=KEYS, count=st.sampled_from([1, 2, 2**32 - 1]))
    def credit(self, holder: int, keys: list[int], count: int) -> None:
        owners = np.full(len(keys), holder, np.int32)
        counts = np.full(len(keys), count, np.uint32)

        def update() -> None:
            for key in keys:
                hold = self.holds.get((holder, key))
                if hold is not None:
                    self.holds[holder, key] = hold._replace(access=min(hold.access + count, 2**32 - 1))

        self.expect(lambda: self.table.credit(owners, packed(keys), counts), update)

    @rule(holder=st.sampled_from(HOLDERS), alive=st.integers(-9, 9))
    def set_alive(self, holder: int, alive: int) -> None:
        self.table.set_alive(holder, alive)
        self.alive[holder] = alive

    @rule(time=st.integers(-9, 9))
    def restamp(self, time: int) -> None:
        self.expect(lambda: self.table.restamp(time), lambda: None)
        self.holds = {at: hold._replace(seen=time) for at, hold in self.holds.items()}

    @rule()
    def go_on_with_a_copy(self) -> None:
        copy = HoldTable(1, is_indexer=True)
        old, self.table = self.table, copy
        self.open()
        numbers = np.arange(len(HOLDERS), dtype=np.int32)
        new, new_keys = np.zeros(len(HOLDERS), np.int64), np.zeros(len(HOLDERS), np.int64)
        digest = access = 0
        for columns in old.export(numbers, 5):
            digest += copy.load(numbers, columns, new, new_keys)[2]
        for counted in old.export_access(numbers, 5):
            access += copy.credit(*counted)[3]
        assert (digest & MASK, access & MASK) == (self.digest, self.access_digest)
        assert (new.sum(), new_keys.sum()) == (len(self.holds), len(self.keys_of_all()))
        for holder, alive in self.alive.items():
            copy.set_alive(holder, alive)

    @rule(keyspace=st.integers(0, KEYSPACES - 1), key=st.integers(0, 40), oldest=st.integers(-9, 9))
    def ask_for_a_key(self, keyspace: int, key: int, oldest: int) -> None:
        hits = self.table.exact(keyspace, SEEDS[keyspace], key, oldest)
        expected = []
        for replica in range(REPLICAS):
            holder = keyspace * REPLICAS + replica
            hold = self.holds.get((holder, key))
            if hold is not None and self.seen(holder, hold) > oldest:
                expected.append((replica, hold.tokens, self.seen(holder, hold), hold.tier))
        assert sorted(hits) == expected

    @rule(data=st.data(), oldest=st.integers(-9, 9))
    def ask_for_a_chain(self, data: st.DataObject, oldest: int) -> None:
        keys = data.draw(KEYS)
        spaces = data.draw(st.lists(st.integers(-1, KEYSPACES - 1), min_size=len(keys), max_size=len(keys)))
        if data.draw(st.booleans()):
            spaces = [max(0, spaces[0])]
        numbers = np.array(spaces, np.int32)
        seeds = np.array([SEEDS[space] for space in spaces], np.uint64)
        runs = self.table.leading_runs(numbers, seeds, packed(keys), oldest)
        spaces *= len(keys) if len(spaces) == 1 else 1
        assert sorted(runs) == list(self.expected_runs(spaces, keys, oldest))

    def expected_runs(
        self, spaces: list[int], keys: list[int], oldest: int
    ) -> Iterable[tuple[int, int, int, int]]:
        for replica in range(REPLICAS):
            run = []
            for space, key in zip(spaces, keys, strict=True):
                hold = self.holds.get((space * REPLICAS + replica, key)) if space >= 0 else None
                if hold is None or self.seen(space * REPLICAS + replica, hold) <= oldest:
                    break
                run.append((self.seen(space * REPLICAS + replica, hold), hold.tier))
            if run:
                yield replica, len(run), min(seen for seen, _ in run), max(tier for _, tier in run)

    def seen(self, holder: int, hold: Hold) -> int:
        return hold.seen if hold.uncertain else max(hold.seen, self.alive[holder])

    @invariant()
    def the_table_is_the_dict(self) -> None:
        assert len(self.table) == len(self.holds)
        for holder in HOLDERS:
            held = sorted(key for of, key in self.holds if of == holder)
            assert sorted(self.table.keys_of(holder).tolist()) == held
        digest = access = 0
        for (holder, key), (count, seen, tier, uncertain, counted) in self.holds.items():
            digest += entry_hash(1000 + holder, key, count, seen, tier, uncertain)
            access += access_hash(1000 + holder, key, counted)
        assert (digest & MASK, access & MASK) == (self.digest, self.access_digest)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_table_grows_when_its_capacity_does_not_suffice() -> None:
    table = HoldTable(2)
    holder = table.open_holder(1, 2, 0, 0, 0)
    for start in range(0, 1000, 100):
        keys = packed(range(start, start + 100))
        table.hold(holder, keys, np.zeros(100, np.int32), 1, 0)
    assert len(table) == 1000
    assert all(table.exact(0, 2, key, -1) for key in range(1000))


def test_freed_numbers_and_room_are_used_again() -> None:
    table = HoldTable(64)
    for _ in range(1000):
        holder = table.open_holder(1, 2, 0, 0, 0)
        assert holder == 0
        table.hold(holder, packed(range(64)), np.zeros(64, np.int32), 1, 0)
        table.clear(holder)
        table.close_holder(holder)
    assert table.used_bytes <= HoldTable(64).used_bytes + 64 * 40


def test_an_uncertain_hold_behind_a_certain_one_is_no_export() -> None:
    table = HoldTable(4)
    holder = np.array([table.open_holder(1, 2, 0, 0, 0)] * 2, np.int32)
    marks = np.array([2, 3], np.uint32)
    columns = Columns(holder, packed([1, 2]), np.zeros(2, np.int64), np.zeros(2, np.int32), marks)
    with pytest.raises(ValueError, match="uncertain"):
        table.load(holder, columns, np.zeros(1, np.int64), np.zeros(1, np.int64))


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 5, 9, 10])
def test_a_full_table_still_finds_that_a_key_is_missing(capacity: int) -> None:
    table = HoldTable(capacity)
    holder = table.open_holder(1, 2, 0, 0, 0)
    table.hold(holder, packed(range(capacity)), np.zeros(capacity, np.int32), 1, 0)
    assert table.exact(0, 2, capacity, -1) == []
    table.release(holder, packed(range(100)))
    assert len(table) == 0
