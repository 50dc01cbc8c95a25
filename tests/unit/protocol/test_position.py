"""A reader notices every way in which a stream is not the continuation of what it has read."""

from __future__ import annotations

import pytest

from inferencecache.core.protocol.position import Lost, PositionCheck, StreamEnds, Verdict
from inferencecache.schemas.positions import Position

HERE = Position(5, 500, 7)


def opened(position: Position, ends: StreamEnds, *, strict: bool = True) -> PositionCheck:
    check = PositionCheck(position, strict=strict)
    assert check.opened(ends) is None
    return check


def reason(answer: object) -> str:
    assert isinstance(answer, Lost)
    return answer.reason


def test_a_reader_from_the_start_takes_every_message_in_order() -> None:
    check = opened(Position(), StreamEnds(7, 0, 0))
    assert check.open_at == 1
    assert [check.received(n, n * 100) for n in (1, 2, 3)] == [Verdict.DELIVER] * 3
    assert check.position == Position(3, 300, 7)


def test_a_reader_opens_at_its_position_and_drops_that_message() -> None:
    check = opened(HERE, StreamEnds(7, 2, 9))
    assert check.open_at == 5
    assert check.received(5, 500) is Verdict.DROP
    assert check.received(6, 600) is Verdict.DELIVER
    assert check.position == Position(6, 600, 7)


def test_another_message_at_the_position_is_lost_storage() -> None:
    check = opened(HERE, StreamEnds(7, 2, 9))
    assert reason(check.received(5, 501)) == "storage_lost"
    assert check.position.sequence == 5


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (StreamEnds(8, 1, 9), "storage_lost"),
        (StreamEnds(7, 1, 4), "storage_lost"),
        (StreamEnds(7, 6, 9), "cut"),
        (StreamEnds(7, 10, 9), "cut"),
    ],
)
def test_the_ends_of_a_stream_tell_that_it_is_lost(ends: StreamEnds, expected: str) -> None:
    assert reason(PositionCheck(HERE).opened(ends)) == expected


def test_a_log_that_lost_its_beginning_is_cut_for_a_reader_from_the_start() -> None:
    assert reason(PositionCheck(Position()).opened(StreamEnds(7, 2, 9))) == "cut"
    check = opened(Position(), StreamEnds(7, 1, 9))
    assert reason(check.received(2, 200)) == "cut"


def test_a_log_cut_between_opening_and_reading_is_noticed() -> None:
    check = opened(HERE, StreamEnds(7, 5, 9))
    assert reason(check.received(7, 700)) == "cut"


def test_a_hole_on_the_way_is_looked_at_again_from_the_position() -> None:
    check = opened(HERE, StreamEnds(7, 5, 9))
    check.received(5, 500)
    assert check.received(7, 700) is Verdict.REOPEN
    assert check.opened(StreamEnds(7, 5, 9)) is None
    assert check.received(5, 500) is Verdict.DROP
    assert check.received(6, 600) is Verdict.DELIVER


def test_a_hole_that_is_still_there_when_looked_at_again_is_a_cut() -> None:
    check = opened(HERE, StreamEnds(7, 5, 9))
    check.received(5, 500)
    assert check.received(7, 700) is Verdict.REOPEN
    check.opened(StreamEnds(7, 5, 9))
    check.received(5, 500)
    assert reason(check.received(7, 700)) == "cut"


def test_a_repeated_message_is_dropped() -> None:
    check = opened(Position(), StreamEnds(7, 1, 2))
    check.received(1, 100)
    assert check.received(1, 100) is Verdict.DROP


def test_a_place_known_only_by_number_goes_on_with_the_next_message() -> None:
    check = opened(Position(5), StreamEnds(7, 2, 9))
    assert check.open_at == 6
    assert check.received(6, 600) is Verdict.DELIVER
    assert check.opened(StreamEnds(8, 1, 9)) is not None


def test_a_reader_of_some_subjects_takes_holes_and_still_notices_another_stream() -> None:
    check = opened(Position(), StreamEnds(7, 3, 9), strict=False)
    assert check.received(4, 400) is Verdict.DELIVER
    assert check.received(9, 900) is Verdict.DELIVER
    assert check.received(9, 900) is Verdict.DROP
    assert reason(check.opened(StreamEnds(8, 1, 9))) == "storage_lost"
