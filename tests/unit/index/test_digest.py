"""The kernels sum what the definition of the digest says."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from inferencecache.core.index.digest import MASK, access_hash, entry_hash, row_hash
from inferencecache.core.index.table import HoldTable
from inferencecache.schemas.deltas import ReplicaName, ReplicaRow, StatsRow
from inferencecache.schemas.ids import HashScheme, Incarnation, ModelId, ReplicaId, TenantId

u64 = st.integers(0, MASK)
i64 = st.integers(-(2**63), 2**63 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)


@given(u64, u64, i32, i64, st.integers(1, 2**31 - 1), st.integers(1, 2**32 - 1))
def test_a_hold_adds_its_hash(
    identity: int, key: int, tokens: int, seen_us: int, tier: int, accesses: int
) -> None:
    table = HoldTable(1, is_indexer=True)
    holder = table.open_holder(identity, 0, 0, 0, 0)
    keys, counts = np.array([key], np.uint64), np.array([tokens], np.int32)

    certain = entry_hash(identity, key, tokens, seen_us, tier, uncertain=False)
    uncertain = entry_hash(identity, key, tokens, seen_us, tier, uncertain=True)
    counted = access_hash(identity, key, accesses)
    assert table.hold(holder, keys, counts, tier, seen_us)[2] == certain
    assert table.hold(holder, keys, counts, tier, seen_us)[2] == 0
    owners, access = np.array([holder], np.int32), np.array([accesses], np.uint32)
    assert table.credit(owners, keys, access)[3] == counted
    assert table.doubt(holder)[1][2] == (uncertain - certain) & MASK
    assert table.release(holder, keys)[2:] == (-uncertain & MASK, -counted & MASK)


def test_an_access_count_of_nothing_adds_nothing() -> None:
    assert access_hash(1, 2, 0) == 0


def test_each_property_of_a_hold_counts() -> None:
    holds = [
        (1, 2, 3, 4, 1, False),
        (2, 2, 3, 4, 1, False),
        (1, 3, 3, 4, 1, False),
        (1, 2, 4, 4, 1, False),
        (1, 2, 3, 5, 1, False),
        (1, 2, 3, 4, 2, False),
        (1, 2, 3, 4, 1, True),
    ]
    assert len({entry_hash(*hold) for hold in holds}) == len(holds)


def test_each_field_of_a_row_counts() -> None:
    row = ReplicaRow(ReplicaName(TenantId("t"), ModelId("m"), ReplicaId("r")))
    stats = StatsRow(*range(1, 11))
    rows = [
        row,
        msgspec.structs.replace(row, name=ReplicaName(TenantId("u"), ModelId("m"), ReplicaId("r"))),
        msgspec.structs.replace(row, incarnation=Incarnation("i")),
        msgspec.structs.replace(row, begun_at=1),
        msgspec.structs.replace(row, alive_us=1),
        msgspec.structs.replace(row, heard_us=1),
        msgspec.structs.replace(row, scheme=HashScheme("vllm")),
        msgspec.structs.replace(row, stats=StatsRow()),
        *(
            msgspec.structs.replace(row, stats=msgspec.structs.replace(stats, **{field: 99}))
            for field in StatsRow.__struct_fields__
        ),
    ]
    assert len({row_hash(row) for row in rows}) == len(rows)


def test_a_field_at_its_default_at_the_end_of_a_row_does_not_count() -> None:
    row = ReplicaRow(
        ReplicaName(TenantId("t"), ModelId("m"), ReplicaId("r")), heard_us=5, stats=StatsRow(hit_rate=0.5)
    )
    without = msgspec.msgpack.encode((row.name, "", 0, 0, 5, (0, 0.5)))
    assert row_hash(row) == xxh3_64_intdigest(without)
