"""An indexer begins from a snapshot, else from the log, and claims a new log epoch only when it is alone."""

from __future__ import annotations

from inferencecache.core.protocol.bases import AskSnapshot, Load, ReadRefs
from inferencecache.core.protocol.restoring import ClaimAnew, OpenLog, Restoring
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.positions import Position, Refs, SnapshotRef


def ref(name: str, log: int = 10) -> SnapshotRef:
    return SnapshotRef(name, digest_text(0), Position(log, log, 1), Position(5, 5, 1), LogEpoch("e"))


BOTH = Refs(ref("current"), ref("previous", 5))


def test_the_current_snapshot_comes_first_and_the_log_goes_on_from_it() -> None:
    restoring = Restoring()
    assert restoring.start() == [ReadRefs()]
    assert restoring.refs_read(0.0, BOTH) == [Load(ref("current"))]
    assert restoring.loaded(ref("current")) == [OpenLog(Position(10, 10, 1), ref("current"))]
    restoring.opened()
    assert not restoring.void
    assert restoring.poll(100.0, announced_by_others=False) == []


def test_the_previous_snapshot_and_then_the_log_itself_follow() -> None:
    restoring = Restoring()
    assert restoring.refs_read(0.0, BOTH) == [Load(ref("current"))]
    assert restoring.load_failed() == [ReadRefs()]
    assert restoring.refs_read(0.0, BOTH) == [Load(ref("previous", 5))]
    assert restoring.lost() == [ReadRefs()]
    assert restoring.refs_read(0.0, BOTH) == [OpenLog(Position(), None)]
    assert restoring.from_log == 1


def test_without_references_the_log_is_read_from_its_start() -> None:
    assert Restoring().refs_read(0.0, None) == [OpenLog(Position(), None)]


def void() -> Restoring:
    restoring = Restoring()
    restoring.refs_read(0.0, None)
    assert restoring.lost() == [ReadRefs()]
    assert restoring.refs_read(0.0, None) == [AskSnapshot()]
    assert restoring.void
    return restoring


def test_when_no_base_fits_a_snapshot_is_asked_for_and_taken_when_it_appears() -> None:
    restoring = void()
    assert restoring.poll(0.5, announced_by_others=True) == []
    assert restoring.poll(1.0, announced_by_others=True) == [ReadRefs()]
    assert restoring.refs_read(1.0, Refs(ref("fresh"))) == [Load(ref("fresh"))]
    restoring.loaded(ref("fresh"))
    restoring.opened()
    assert not restoring.void


def test_a_new_log_epoch_begins_only_after_six_seconds_alone() -> None:
    restoring = void()
    for second in range(1, 6):
        assert restoring.poll(float(second), announced_by_others=False) == [ReadRefs()]
        assert restoring.refs_read(float(second), None) == [AskSnapshot()]
    assert restoring.poll(6.1, announced_by_others=True) == [ReadRefs()]
    restoring.refs_read(6.1, None)
    assert restoring.poll(7.2, announced_by_others=False) == [ClaimAnew()]
    assert restoring.poll(7.3, announced_by_others=False) == []
    assert restoring.claimed(42) == [OpenLog(Position(41), None)]
    restoring.opened()
    assert not restoring.void


def test_a_claim_that_failed_is_tried_again() -> None:
    restoring = void()
    assert restoring.poll(7.0, announced_by_others=False) == [ClaimAnew()]
    restoring.claim_failed(7.0)
    assert restoring.poll(7.5, announced_by_others=False) == []
    assert restoring.poll(8.0, announced_by_others=False) == [ClaimAnew()]


def test_a_log_that_is_lost_later_is_restored_like_at_the_start() -> None:
    restoring = Restoring()
    restoring.refs_read(0.0, BOTH)
    restoring.loaded(ref("current"))
    restoring.opened()
    assert restoring.lost() == [ReadRefs()]
    assert restoring.refs_read(9.0, BOTH) == [Load(ref("current"))]


def test_references_that_cannot_be_read_are_read_again() -> None:
    restoring = Restoring()
    assert restoring.refs_failed(0.0) == []
    assert restoring.poll(1.0, announced_by_others=False) == [ReadRefs()]


def test_a_base_that_is_out_of_reach_is_tried_again_ever_more_slowly_and_no_other_before_it() -> None:
    restoring = Restoring()
    now = 0.0
    assert restoring.refs_read(now, BOTH) == [Load(ref("current"))]
    for wait_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert restoring.load_unreachable(now, ref("current")) == []
        assert restoring.poll(now + wait_s - 0.1, announced_by_others=False) == []
        now += wait_s
        assert restoring.poll(now, announced_by_others=False) == [ReadRefs()]
        assert restoring.refs_read(now, BOTH) == [Load(ref("current"))]
    assert restoring.load_failed() == [ReadRefs()]
    assert restoring.refs_read(now, BOTH) == [Load(ref("previous", 5))]
    restoring.load_unreachable(now, ref("previous", 5))
    assert restoring.poll(now + 1.0, announced_by_others=False) == [ReadRefs()]
    assert restoring.refs_read(now, BOTH) == [Load(ref("previous", 5))]
    assert restoring.from_log == 0


def test_a_base_that_is_out_of_reach_keeps_a_new_log_epoch_from_beginning() -> None:
    restoring = void()
    assert restoring.poll(1.0, announced_by_others=False) == [ReadRefs()]
    assert restoring.refs_read(1.0, Refs(ref("fresh"))) == [Load(ref("fresh"))]
    restoring.load_unreachable(6.5, ref("fresh"))
    assert not restoring.void
    assert restoring.poll(7.5, announced_by_others=False) == [ReadRefs()]
    assert restoring.refs_read(7.5, Refs(ref("fresh"))) == [Load(ref("fresh"))]
    restoring.load_failed()
    assert restoring.refs_read(8.0, Refs(ref("fresh"))) == [AskSnapshot()]
    assert restoring.poll(13.9, announced_by_others=False) == [ReadRefs()]


def test_the_time_alone_is_one_in_which_references_could_be_read() -> None:
    restoring = void()
    assert restoring.poll(1.0, announced_by_others=False) == [ReadRefs()]
    restoring.refs_failed(6.0)
    assert restoring.poll(7.0, announced_by_others=False) == [ReadRefs()]
    restoring.refs_failed(12.0)
    for second in range(13, 18):
        assert restoring.poll(float(second), announced_by_others=False) == [ReadRefs()]
        assert restoring.refs_read(float(second), None) == [AskSnapshot()]
    assert restoring.poll(18.0, announced_by_others=False) == [ClaimAnew()]
