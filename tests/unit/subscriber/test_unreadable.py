"""What cannot be read may have taken something away: it is answered like a message that was lost."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.event_path import EventPath, OnGap, Tell
from inferencecache.kvevent_subscriber.mapping import MappingSettings
from inferencecache.kvevent_subscriber.reports import Added, AllKnown, Doubted, Report, Restarted
from tests.unit.subscriber.frames import Listener
from tests.unit.subscriber.test_worked_cases import CLEAR, K1, add, encode, hear, store

FIRST = store([1], range(1, 5))
UNREADABLE_REMOVALS = [
    pytest.param({"type": "BlockRemoved"}, id="no hashes"),
    pytest.param({"type": "BlockRemoved", "block_hashes": [None]}, id="no hash"),
    pytest.param(["BlockRemoved"], id="truncated"),
    pytest.param({"block_hashes": [1]}, id="no type"),
    pytest.param([], id="empty"),
    pytest.param(7, id="neither map nor array"),
]


def told_of_loss(listener: Listener) -> list[Report]:
    return [report for report in listener.raw if not isinstance(report, Added)]


def knows_all(listener: Listener) -> bool:
    return listener.path.all_known


@pytest.mark.rule("SUB-033", "SUB-057")
@pytest.mark.parametrize("payload", [b"\xff\x00", encode([1.0]), encode(["now", []]), encode([1.0, 7])])
def test_after_a_message_that_cannot_be_read_nothing_told_is_certain(payload: bytes) -> None:
    listener = Listener()
    assert hear(listener, FIRST, number=0) == [add(K1, 4)]
    assert knows_all(listener)
    listener.hear(b"kv-events", (1).to_bytes(8, "big"), payload)
    assert told_of_loss(listener) == [AllKnown(), Doubted(1)]
    assert not knows_all(listener)
    told = [report for group in listener.path.full_state(0.0) for report in group.reports]
    assert [type(report) for report in told] == [Added, Doubted]
    assert listener.diary.total("unrecovered_messages") == 0


def test_a_first_message_that_cannot_be_read_leaves_something_unknown() -> None:
    listener = Listener()
    listener.hear(b"kv-events", bytes(8), b"\xff\x00")
    assert listener.raw == [Doubted(1)]
    assert not knows_all(listener)


@pytest.mark.rule("SUB-035", "SUB-057")
@pytest.mark.parametrize("event", UNREADABLE_REMOVALS)
def test_after_a_removal_that_cannot_be_read_nothing_told_is_certain(event: Any) -> None:
    listener = Listener()
    hear(listener, FIRST, number=0)
    hear(listener, event, number=1)
    assert told_of_loss(listener) == [AllKnown(), Doubted(1)]
    assert not knows_all(listener)


@pytest.mark.rule("SUB-035")
def test_a_store_that_cannot_be_read_takes_nothing_away() -> None:
    listener = Listener()
    hear(listener, FIRST, {"type": "BlockStored"}, ["BlockStored"], store([None], range(1, 5)), number=0)
    assert told_of_loss(listener) == [AllKnown()]


def test_what_cannot_be_read_does_not_matter_once_the_engine_emptied_its_cache() -> None:
    listener = Listener()
    hear(listener, FIRST, number=0)
    hear(listener, {"type": "BlockRemoved"}, CLEAR, number=1)
    assert Doubted(1) not in listener.raw
    assert knows_all(listener)
    hear(listener, CLEAR, {"type": "BlockRemoved"}, number=2)
    assert Doubted(1) in listener.raw
    assert not knows_all(listener)


@pytest.mark.parametrize(("on_gap", "told"), [("clear", [AllKnown(), Restarted()]), ("keep", [AllKnown()])])
def test_what_cannot_be_read_is_answered_as_gaps_are(on_gap: OnGap, told: list[Report]) -> None:
    listener = Listener(on_gap=on_gap)
    hear(listener, FIRST, number=0)
    hear(listener, {"type": "BlockRemoved"}, number=1)
    assert told_of_loss(listener) == told
    assert not knows_all(listener)


def test_a_clear_before_a_loss_found_with_it_does_not_make_everything_known() -> None:
    listener = Listener(replays=True)
    listener.take(listener.path.connected(0, 0.0, None))
    hear(listener, CLEAR, number=5)
    hear(listener, FIRST, number=7)
    for _ in range(2):
        listener.take(listener.path.reply(0, [b"", b"\xff" * 8, b""], 0.0))
    assert Doubted(1) in listener.raw
    assert not knows_all(listener)


@pytest.mark.rule("SUB-057")
def test_a_new_beginning_is_told_alone_even_after_stores_of_the_same_message() -> None:
    path = EventPath(MappingSettings(), Diary(), on_gap="clear", replays=False)
    payload = encode([1.0, [FIRST, {"type": "BlockRemoved"}]])
    effects = path.message(0, [b"kv-events", bytes(8), payload], 0.0)
    told = [effect.reports for effect in effects if isinstance(effect, Tell)]
    assert [Restarted()] in told
    assert all(len(reports) == 1 for reports in told if Restarted() in reports)
    assert any(isinstance(report, Added) for reports in told for report in reports)
