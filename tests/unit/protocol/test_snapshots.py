"""A snapshot is referenced only after it was read back, and only what lies below the previous one goes."""

from __future__ import annotations

import pytest
from msgspec import structs

from inferencecache.core.protocol.bases import (
    BaseChoice,
    ReadRefs,
    SnapshotObject,
    object_name,
    purge_deltas_below,
    succeed,
    superfluous,
)
from inferencecache.core.protocol.snapshots import (
    Dropped,
    FindDelta,
    Purge,
    Referenced,
    Snapshots,
    SnapshotSettings,
    Store,
    WriteRefs,
)
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import LogEpoch, OwnerId
from inferencecache.schemas.positions import Position, Refs, SnapshotRef

SETTINGS = SnapshotSettings(interval_s=100.0, max_cost=1000)


def ref(log: int, delta: int, *, epoch: str = "e", created: int = 1) -> SnapshotRef:
    return SnapshotRef(
        f"o{log}-{delta}",
        digest_text(0),
        Position(log, 1, created),
        Position(delta, 1, created),
        LogEpoch(epoch),
    )


def owning(*, has_base: bool = True) -> Snapshots:
    snapshots = Snapshots(SETTINGS)
    snapshots.owning(0.0, has_base, 0)
    return snapshots


def test_steps_follow_one_another_and_purging_comes_last() -> None:
    snapshots = owning()
    assert snapshots.take(0.0, 7, 0) == [FindDelta(7)]
    at = Position(7, 70, 1)
    assert snapshots.found(at) == [Store(at)]
    assert snapshots.stored(ref(30, 7)) == [ReadRefs()]
    before = Refs(ref(20, 5), ref(10, 3))
    after = Refs(ref(30, 7), ref(20, 5))
    assert snapshots.refs_read(before, 4) == [WriteRefs(after, 4)]
    assert snapshots.referenced() == [Referenced(False, ref(30, 7)), Purge(5, after)]
    assert not snapshots.busy


def test_the_first_snapshot_purges_no_delta() -> None:
    snapshots = owning()
    snapshots.take(0.0, 7, 0)
    snapshots.found(Position(7, 70, 1))
    snapshots.stored(ref(30, 7))
    snapshots.refs_read(None, 0)
    assert snapshots.referenced()[1] == Purge(0, Refs(ref(30, 7)))


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_step_that_fails_drops_the_snapshot_and_nothing_is_purged(step: int) -> None:
    snapshots = owning()
    snapshots.take(0.0, None, 0)
    if step > 1:
        snapshots.found(Position(7, 70, 1))
    if step > 2:
        snapshots.stored(ref(30, 7))
    if step > 3:
        snapshots.refs_read(None, 0)
    assert snapshots.failed("why") == [Dropped(True, "why")]
    assert snapshots.failed("again") == []
    assert (snapshots.busy, snapshots.dropped_count, snapshots.referenced_count) == (False, 1, 0)


def test_a_snapshot_is_due_by_age_by_what_its_deltas_cost_and_when_asked_for() -> None:
    snapshots = owning()
    assert not snapshots.is_due(99.0, 999)
    assert snapshots.is_due(100.0, 0)
    assert snapshots.is_due(1.0, 1000)
    snapshots.asked(5.0)
    assert snapshots.is_due(5.0, 0)
    snapshots.take(5.0, 7, 0)
    assert not snapshots.is_due(500.0, 5000)
    snapshots.failed("")
    snapshots.asked(5.1)
    assert not snapshots.is_due(6.0, 0)
    assert snapshots.is_due(7.0, 0)


def test_an_owner_without_a_base_of_its_epoch_takes_one_soon() -> None:
    snapshots = owning(has_base=False)
    assert not snapshots.is_due(0.5, 0)
    assert snapshots.is_due(1.0, 0)


def test_who_does_not_own_takes_none() -> None:
    assert not Snapshots(SETTINGS).is_due(1e9, 10**9)


@pytest.mark.parametrize(
    ("current", "new", "is_taken"),
    [
        (ref(10, 5), ref(20, 6), True),
        (ref(10, 5), ref(20, 5), True),
        (ref(20, 5), ref(10, 6), False),
        (ref(10, 6), ref(20, 5), False),
        (ref(20, 6, epoch="old"), ref(1, 1), True),
        (ref(20, 6, created=1), ref(30, 1, created=2), True),
    ],
)
def test_a_reference_never_goes_back_in_its_log_epoch(
    current: SnapshotRef, new: SnapshotRef, is_taken: bool
) -> None:
    refs = succeed(Refs(current), new)
    assert refs == (Refs(new, current) if is_taken else None)


def test_a_reference_goes_back_behind_a_tail_that_the_storage_has_lost() -> None:
    lost = ref(20, 6)
    later = ref(10, 5)
    new = structs.replace(later, log=Position(10, 2, 1), delta=Position(5, 2, 1))
    assert succeed(Refs(lost), new) == Refs(new, lost)


def test_a_snapshot_at_the_end_of_deltas_that_have_lost_their_tail_is_referenced() -> None:
    lost, new = ref(10, 6), ref(20, 5)
    assert succeed(Refs(lost), new, at_end=True) == Refs(new, lost)
    assert succeed(Refs(ref(30, 6)), new, at_end=True) is None


def test_deltas_of_another_life_of_the_stream_are_not_purged() -> None:
    assert purge_deltas_below(Refs(ref(20, 6), ref(10, 5))) == 5
    assert purge_deltas_below(Refs(ref(20, 6, created=2), ref(10, 5))) == 0
    assert purge_deltas_below(Refs(ref(20, 6))) == 0


def test_bases_are_offered_once_best_first() -> None:
    choice = BaseChoice()
    refs = Refs(ref(20, 6), ref(10, 5))
    assert [choice.next(refs), choice.next(refs), choice.next(refs)] == [refs.current, refs.previous, None]
    newer = Refs(ref(30, 7), ref(20, 6))
    assert [choice.next(newer), choice.next(newer)] == [newer.current, None]
    choice.begin_anew()
    assert choice.next(newer) == newer.current
    assert choice.next(None) is None


def entry(hour: int, minute: int, log: int) -> SnapshotObject:
    name = object_name(1, 0, Position(log), OwnerId("a"), f"r{log}")
    return SnapshotObject(name, hour * 3600.0 + minute * 60.0, 10)


OBJECTS = [entry(1, 5, 100), entry(1, 40, 200), entry(2, 1, 300), entry(2, 30, 400), entry(2, 59, 500)]
NAMES = [each.name for each in OBJECTS]
REFS = Refs(
    SnapshotRef(NAMES[4], digest_text(0), Position(), Position(), LogEpoch("e")),
    SnapshotRef(NAMES[3], digest_text(0), Position(), Position(), LogEpoch("e")),
)


def test_the_first_object_of_each_hour_stays_while_the_log_reaches_it() -> None:
    assert superfluous(OBJECTS, REFS, 1, room=100) == [NAMES[1]]
    assert superfluous(OBJECTS, REFS, 101, room=100) == [NAMES[1]]
    assert superfluous(OBJECTS, REFS, 102, room=100) == [NAMES[0]]
    assert superfluous(OBJECTS, REFS, 302, room=100) == NAMES[:3]


def test_bases_for_replay_take_only_the_room_there_is() -> None:
    assert superfluous(OBJECTS, REFS, 1, room=20) == [NAMES[1]]
    assert superfluous(OBJECTS, REFS, 1, room=19) == NAMES[:2]
    assert superfluous(OBJECTS, REFS, 1, room=0) == NAMES[:3]
    assert superfluous(OBJECTS, None, 1, room=0) == NAMES
