"""What the fold changed leaves in whole messages [architecture, section 3]."""

from __future__ import annotations

import pytest

from inferencecache.core.index.changes import ChangeLog, ChangesMissingError, Mark, Piece
from inferencecache.schemas.deltas import (
    Held,
    HolderCleared,
    HolderName,
    Released,
    ReplicaForgotten,
    ReplicaName,
    ReplicaRow,
    TimeStarted,
)
from inferencecache.schemas.ids import AdapterId, HashScheme, LogEpoch, ModelId, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position

TENANT, MODEL = TenantId("t"), ModelId("m")


def holder(replica: str) -> HolderName:
    return HolderName(TENANT, MODEL, HashScheme("vllm"), AdapterId(""), 8, ReplicaId(replica))


def row(replica: str, heard_us: int) -> ReplicaRow:
    return ReplicaRow(ReplicaName(TENANT, MODEL, ReplicaId(replica)), heard_us=heard_us)


def held(keys: bytes, *, tier: int = 1, seen_us: int = 5) -> Held:
    return Held(0, tier, seen_us, keys, b"x" * (len(keys) // 2))


class Writing:
    """A change log and the messages closed in it."""

    def __init__(self) -> None:
        self.log = ChangeLog()
        self.sequence = 0

    def close(self, epoch: str = "epoch") -> None:
        self.sequence += 1
        self.log.close(Mark(at(self.sequence), LogEpoch(epoch), self.sequence, self.sequence * 10, 0))

    def cut(self, from_: int = 0, max_bytes: int = 1 << 20) -> list[Piece]:
        return list(self.log.cut(at(from_), max_bytes))


def at(sequence: int) -> Position:
    return Position(sequence, sequence * 1000)


@pytest.fixture
def writing() -> Writing:
    return Writing()


def test_stores_of_one_holder_time_and_tier_in_a_row_become_one_change(writing: Writing) -> None:
    for keys in (b"11111111", b"22222222"):
        writing.log.note(holder("a"), held(keys))
        writing.close()
    writing.log.note(holder("b"), held(b"33333333"))
    writing.log.note(holder("a"), held(b"44444444", seen_us=6))
    writing.log.note(holder("a"), Released(0, b"11111111"))
    writing.log.note(holder("a"), held(b"55555555", seen_us=6))
    writing.close()
    (piece,) = writing.cut()
    assert piece.holders == (holder("a"), holder("b"))
    assert piece.changes == (
        Held(0, 1, 5, b"1111111122222222", b"xxxxxxxx"),
        Held(1, 1, 5, b"33333333", b"xxxx"),
        Held(0, 1, 6, b"44444444", b"xxxx"),
        Released(0, b"11111111"),
        Held(0, 1, 6, b"55555555", b"xxxx"),
    )
    assert (piece.from_, piece.mark.position, piece.mark.digest) == (at(0), at(3), 30)


def test_the_last_row_of_a_replica_counts(writing: Writing) -> None:
    writing.log.note_row(row("a", 1))
    writing.log.note_row(row("b", 1))
    writing.close()
    writing.log.note_row(row("a", 2))
    writing.log.note(holder("a"), HolderCleared(0))
    writing.close()
    writing.log.note_row(ReplicaForgotten(row("b", 0).name))
    writing.close()
    (piece,) = writing.cut()
    assert piece.changes == (HolderCleared(0), row("a", 2), ReplicaForgotten(row("b", 0).name))


def test_rows_from_before_time_starts_come_before_it(writing: Writing) -> None:
    writing.log.note_row(row("a", 0))
    writing.close()
    writing.log.note_time(TimeStarted(7))
    writing.close()
    writing.log.note_row(row("a", 8))
    writing.close()
    (piece,) = writing.cut()
    assert piece.changes == (row("a", 0), TimeStarted(7), row("a", 8))


def test_pieces_are_of_whole_messages_and_about_as_large_as_asked(writing: Writing) -> None:
    for _ in range(10):
        writing.log.note(holder("a"), held(b"1" * 800))
        writing.log.note(holder("b"), held(b"2" * 800))
        writing.close()
    pieces = writing.cut(max_bytes=6000)
    assert [piece.from_ for piece in pieces] == [at(0), *(piece.mark.position for piece in pieces[:-1])]
    assert pieces[-1].mark.position == at(10)
    assert 3 <= len(pieces) <= 5
    assert len(writing.cut(max_bytes=1)) == 10


def test_a_piece_does_not_reach_over_the_beginning_of_a_log_epoch(writing: Writing) -> None:
    writing.log.note(holder("a"), held(b"11111111"))
    writing.close("old")
    writing.log.note(holder("a"), held(b"22222222"))
    writing.log.note_emptied()
    writing.log.note(holder("a"), held(b"33333333"))
    writing.close("new")
    old, new = writing.cut()
    assert (old.mark.log_epoch, old.emptied, new.mark.log_epoch, new.emptied) == ("old", False, "new", True)
    assert new.changes == (Held(0, 1, 5, b"33333333", b"xxxx"),)


def test_what_a_delta_has_said_is_dropped(writing: Writing) -> None:
    for _ in range(5):
        writing.close()
    writing.log.drop_through(2)
    assert (writing.log.pending, writing.log.kept_from) == (3, at(2))
    assert [piece.from_ for piece in writing.cut(2, 1)] == [at(2), at(3), at(4)]
    assert [piece.from_ for piece in writing.cut(3, 1)] == [at(3), at(4)]
    assert writing.cut(5) == []
    with pytest.raises(ChangesMissingError) as error:
        writing.cut(1)
    assert (error.value.wanted, error.value.kept_from) == (at(1), at(2))


def test_more_than_may_be_kept_is_given_up_as_a_whole(writing: Writing) -> None:
    writing.log = ChangeLog(max_bytes=3000)
    kept = []
    for _ in range(10):
        writing.log.note(holder("a"), held(b"1" * 400))
        writing.close()
        kept.append(writing.log.pending)
    assert kept == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    with pytest.raises(ChangesMissingError):
        writing.cut(0)
    assert writing.log.kept_from.sequence + writing.log.pending == 10
    writing.log.drop_through(10)
    assert writing.log.pending == 0


def test_a_mark_tells_where_the_state_stood(writing: Writing) -> None:
    for _ in range(3):
        writing.close()
    mark = writing.log.mark_at(2)
    assert mark is not None
    assert mark.digest == 20
    assert writing.log.mark_at(4) is None


def test_a_piece_is_a_delta_of_its_owner(writing: Writing) -> None:
    writing.log.note_row(row("a", 1))
    writing.close()
    (piece,) = writing.cut()
    delta = piece.delta(OwnerId("me"), 7)
    assert (delta.owner, delta.owner_epoch, delta.log_epoch) == ("me", 7, "epoch")
    assert (delta.from_, delta.to, delta.time_us, delta.digest) == (at(0), at(1), 1, 10)
    assert (delta.changes, delta.emptied) == ((row("a", 1),), False)
