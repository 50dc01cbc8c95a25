"""Members are alive by what the observer sees, and partitions fall to those that are caught up."""

from __future__ import annotations

from inferencecache.core.protocol.membership import Membership
from inferencecache.schemas.ids import OwnerId
from inferencecache.schemas.members import FoldedPartition, IndexerMember, Member, RouterMember


def indexer(id_: str, *caught_up: str, behind: tuple[str, ...] = ()) -> IndexerMember:
    partitions = {key: FoldedPartition(caught_up=True) for key in caught_up}
    return IndexerMember(OwnerId(id_), partitions | {key: FoldedPartition() for key in behind})


def ids(members: list[Member]) -> set[str]:
    return {member.id for member in members}


def test_a_member_is_alive_for_three_seconds_after_its_last_new_revision() -> None:
    members = Membership()
    members.seen(10.0, "indexer.a", 1, indexer("a"))
    members.seen(12.0, "router.r", 2, RouterMember("r"))
    assert ids(members.alive(13.0)) == {"a", "r"}
    assert ids(members.alive(13.1)) == {"r"}


def test_the_same_revision_again_proves_nothing() -> None:
    members = Membership()
    members.seen(10.0, "indexer.a", 7, indexer("a"))
    members.seen(12.9, "indexer.a", 7, indexer("a"))
    assert members.alive(13.1) == []
    members.seen(13.2, "indexer.a", 3, indexer("a"))  # the bucket was lost, revisions begin again
    assert ids(members.alive(16.0)) == {"a"}


def test_a_member_that_says_goodbye_is_gone_at_once() -> None:
    members = Membership()
    members.seen(10.0, "indexer.a", 1, indexer("a"))
    members.gone("indexer.a")
    members.gone("indexer.b")
    assert members.alive(10.0) == []


def test_no_member_means_unknown_and_not_nobody() -> None:
    assert Membership().owner_of("1.0", 0.0) is None


def test_only_members_that_are_caught_up_get_a_partition() -> None:
    members = Membership()
    members.seen(0.0, "indexer.a", 1, indexer("a", behind=("1.0",)))
    members.seen(0.0, "indexer.b", 2, indexer("b", "1.0"))
    assert members.owner_of("1.0", 1.0) == "b"
    assert members.owner_of("1.1", 1.0) is None
    assert members.is_announced_by_others("1.0", OwnerId("a"), 1.0)
    assert not members.is_announced_by_others("1.0", OwnerId("b"), 1.0)


def test_partitions_spread_and_only_those_of_a_lost_member_move() -> None:
    keys = [f"1.{number}" for number in range(64)]
    members = Membership()
    for number, id_ in enumerate("abc"):
        members.seen(0.0, f"indexer.{id_}", number, indexer(id_, *keys))
    before = {key: members.owner_of(key, 1.0) for key in keys}
    assert all(8 < sum(owner == id_ for owner in before.values()) < 40 for id_ in "abc")
    members.gone("indexer.c")
    for key, owner in before.items():
        after = members.owner_of(key, 1.0)
        assert after in ("a", "b")
        assert owner in ("c", after)


def test_members_that_are_gone_for_long_are_forgotten() -> None:
    members = Membership()
    for number in range(100):
        members.seen(float(number), f"indexer.{number}", number, indexer(str(number)))
        members.alive(float(number))
    assert len(members._rows) <= 31


def test_after_the_rows_were_lost_nothing_is_decided_until_all_had_time_to_write_again() -> None:
    members = Membership()
    members.rows_lost(10.0)
    members.seen(10.1, "indexer.b", 1, indexer("b", "1.0"))
    assert members.owner_of("1.0", 12.4) is None
    members.seen(12.4, "indexer.a", 2, indexer("a", "1.0"))
    assert members.owner_of("1.0", 12.6) in ("a", "b")
