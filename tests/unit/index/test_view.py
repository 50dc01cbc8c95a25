"""A view follows deltas, or says that it cannot [architecture, sections 2, 3 and 5]."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.reading import Scope
from inferencecache.core.index.view import DeltaMismatchError, View
from inferencecache.schemas.deltas import (
    AnyChange,
    Delta,
    Held,
    HolderCleared,
    HolderDoubted,
    Released,
    ReplicaName,
    ReplicaRow,
    TimeStarted,
)
from inferencecache.schemas.ids import (
    PROBE_TENANT,
    AdapterId,
    HashScheme,
    LogEpoch,
    ModelId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Begin, Stats
from tests.oracle.logs import LogWriter, evicted, stored

SCOPE = Scope(TenantId("t"), ModelId("m"), HashScheme("vllm"))
CHAIN = [f"block-{number:02}".encode() for number in range(20)]


def deltas(messages: Sequence[LogMessage], max_bytes: int = 1) -> list[Delta]:
    """What the owner of this log publishes."""
    fold = Fold(1 << 8)
    for message in messages:
        fold.fold(message)
    pieces = fold.changes.cut(Position(), max_bytes)
    return [piece.delta(fold.view.owner, fold.view.owner_epoch) for piece in pieces]


@pytest.fixture
def log() -> LogWriter:
    log = LogWriter()
    log.claim()
    log.tick()
    log.sidecar("r", "i", 0, Begin(), stored(CHAIN, range(16, 336, 16)), Stats(hit_rate=0.5))
    log.report("s", stored(CHAIN[:3], [16, 32, 48]))
    log.report("s", evicted(CHAIN[2]))
    return log


def test_a_view_that_applied_every_delta_is_the_owners(log: LogWriter) -> None:
    view = View(1)
    for delta in deltas(log.messages):
        view.apply(delta)
        assert (view.digest, view.log, view.time_us) == (delta.digest, delta.to, delta.time_us)
    assert (view.log_epoch, view.owner, view.owner_epoch) == ("epoch", "owner", 1)
    runs = view.leading_runs(SCOPE, AdapterId(""), CHAIN, view.time_us, 1_000_000)
    assert sorted((run.replica, run.blocks) for run in runs) == [("r", 20), ("s", 2)]
    assert view.members(SCOPE) == ("r", "s")
    assert list(view.stats(SCOPE.tenant, SCOPE.model)) == ["r"]
    assert (view.entries, view.distinct_keys(SCOPE.tenant, SCOPE.model)) == (22, 20)


def test_holdings_are_counted_by_holder(log: LogWriter) -> None:
    view = View(1)
    for delta in deltas(log.messages):
        view.apply(delta)
    holdings = {holding.name.replica: (holding.entries, holding.newest_us) for holding in view.holdings()}
    assert holdings == {"r": (20, view.time_us), "s": (2, view.time_us)}


def test_a_delta_that_begins_elsewhere_is_a_hole(log: LogWriter) -> None:
    view = View(1)
    first, second, third, *_ = deltas(log.messages)
    view.apply(first)
    for delta in (first, third):
        with pytest.raises(DeltaMismatchError, match="hole") as error:
            view.apply(delta)
        assert error.value.kind == "hole"
    view.apply(second)
    assert view.log == second.to


def test_a_delta_from_the_same_number_at_another_time_is_a_hole(log: LogWriter) -> None:
    view = View(1)
    first, second, *_ = deltas(log.messages)
    view.apply(first)
    moved = msgspec.structs.replace(second.from_, time_ns=second.from_.time_ns + 1)
    with pytest.raises(DeltaMismatchError, match="hole"):
        view.apply(msgspec.structs.replace(second, from_=moved))


def test_a_delta_of_another_log_epoch_does_not_fit_unless_it_begins_it(log: LogWriter) -> None:
    view = View(1)
    first, second, *_ = deltas(log.messages)
    view.apply(first)
    other = msgspec.structs.replace(second, log_epoch=LogEpoch("other"))
    with pytest.raises(DeltaMismatchError, match="epoch") as error:
        view.apply(other)
    assert error.value.kind == "epoch"


def test_a_delta_that_begins_a_log_epoch_empties_the_view(log: LogWriter) -> None:
    view = View(1)
    for delta in deltas(log.messages):
        view.apply(delta)
    log.claim(log_epoch="other")
    log.report("u", stored([CHAIN[0]], [16]))
    for delta in deltas(log.messages)[-2:]:
        view.apply(delta)
    assert (view.log_epoch, view.entries, view.members(SCOPE)) == ("other", 1, ("u",))


def test_changes_that_lead_elsewhere_are_found_by_their_digest(log: LogWriter) -> None:
    *before, last = deltas(log.messages)
    view = View(1)
    for delta in before:
        view.apply(delta)
    assert isinstance(last.changes[0], Released)
    with pytest.raises(DeltaMismatchError, match="digest") as error:
        view.apply(msgspec.structs.replace(last, changes=()))
    assert error.value.kind == "digest"
    assert not view.proven


@pytest.mark.parametrize(
    "change",
    [
        Held(5, 1, 0, CHAIN[0], b"1234"),
        Held(0, 1, 0, CHAIN[0], b"12345678"),
        Held(0, 1, 0, b"1234567", b"1234"),
        Held(0, 0, 0, CHAIN[0], b"1234"),
        Held(0, 2**31, 0, CHAIN[0], b"1234"),
        Held(0, 1, 2**63, CHAIN[0], b"1234"),
        Held(-1, 1, 0, CHAIN[0], b"1234"),
        Released(0, b"1234567"),
        HolderCleared(5),
        HolderDoubted(-1),
        ReplicaRow(ReplicaName(SCOPE.tenant, SCOPE.model, ReplicaId("r")), alive_us=2**63),
        TimeStarted(2**63),
    ],
)
@pytest.mark.parametrize("emptied", [False, True])
def test_damage_is_found_before_any_change_is_applied(
    log: LogWriter, change: AnyChange, *, emptied: bool
) -> None:
    view = View(1)
    *before, last = deltas(log.messages)
    for delta in before:
        view.apply(delta)
    digest, entries = view.digest, view.entries
    damaged = msgspec.structs.replace(last, emptied=emptied, changes=(*last.changes, change))
    with pytest.raises(DeltaMismatchError, match="damage") as error:
        view.apply(damaged)
    assert error.value.kind == "damage"
    assert (view.digest, view.entries, view.proven) == (digest, entries, True)
    view.apply(last)


def test_nobody_knows_what_was_never_reported() -> None:
    view = View(1)
    adapter = AdapterId("")
    assert view.exact(SCOPE, adapter, CHAIN[0], 0, 1) == []
    assert view.leading_runs(SCOPE, adapter, CHAIN, 0, 1) == []
    assert view.leading_runs(SCOPE, adapter, [], 0, 1) == []
    assert view.leading_runs(SCOPE, adapter, [b"1", CHAIN[0]], 0, 1) == []
    assert (list(view.members(SCOPE)), dict(view.stats(SCOPE.tenant, SCOPE.model))) == ([], {})
    assert view.is_empty()
    assert not view.has_tenant(SCOPE.tenant)
    assert not view.has_model(SCOPE.tenant, SCOPE.model)


def test_a_chain_may_mix_hashes_of_different_widths() -> None:
    log = LogWriter()
    log.claim()
    log.tick()
    for hash_ in (b"1", CHAIN[0], b"x" * 32):
        log.report("r", stored([hash_], [16]))
    log.report("s", stored([b"1"], [16]))
    view = View(1)
    for delta in deltas(log.messages):
        view.apply(delta)
    chain = [b"1", CHAIN[0], b"x" * 32, b"", b"1"]
    runs = view.leading_runs(SCOPE, AdapterId(""), chain, view.time_us, 1_000_000)
    assert sorted((run.replica, run.blocks) for run in runs) == [("r", 3), ("s", 1)]


@pytest.mark.rule("IDX-188")
def test_the_reserved_tenant_does_not_count() -> None:
    log = LogWriter()
    log.claim()
    log.report("r", stored([CHAIN[0]], [16]), tenant=PROBE_TENANT)
    view = View(1)
    for delta in deltas(log.messages):
        view.apply(delta)
    assert (view.entries, view.is_empty(), len(view.table)) == (0, True, 1)
    assert view.members(Scope(PROBE_TENANT, ModelId("m"), HashScheme("vllm"))) == ("r",)


def test_a_hold_of_nothing_leaves_no_holder() -> None:
    view = View(1)
    replica = view.holders.replica(ReplicaName(SCOPE.tenant, SCOPE.model, ReplicaId("r")))
    kind = (HashScheme("vllm"), AdapterId(""), 8)
    nothing = np.zeros(0, np.uint64)
    assert view.hold(replica, kind, nothing, np.zeros(0, np.int32), 1, 0) is None
    assert not view.holders.by_number
