"""Which records of the log are shown as they come."""

from __future__ import annotations

from inferencecache.cli.tailing import Wanted
from inferencecache.core.log.reader import StreamMessage
from inferencecache.core.log.subjects import control_subject, replica_subject
from inferencecache.core.replay import Filter
from inferencecache.schemas.ids import Incarnation, ModelId, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Alive, AnyRecord, Batch, Cleared, Tick, encode_batch
from inferencecache.schemas.senders import ReplicaSender

SENDER = ReplicaSender(TenantId("t"), ModelId("m"), ReplicaId("r"))
OF_REPLICA = replica_subject(1, 0, SENDER)
OF_OWNER = control_subject(1, 0, "o")


def message(subject: str, *records: AnyRecord) -> StreamMessage:
    payload = encode_batch(Batch(Incarnation("i"), 1, 0, records))
    return StreamMessage(subject, payload, Position(7, 1, 1), {}, 0)


def shown(wanted: Wanted, told: StreamMessage) -> list[str]:
    return [record.record for record in wanted.records(3, told)]


REPORTED = message(OF_REPLICA, Alive(), Cleared())
TICKED = message(OF_OWNER, Tick(OwnerId("o"), 1, 2))


def test_what_replicas_report_is_shown_and_what_owners_say_only_when_asked_for() -> None:
    assert shown(Wanted(Filter()), REPORTED) == ["Alive", "Cleared"]
    assert shown(Wanted(Filter()), TICKED) == []
    assert shown(Wanted(Filter(), control=True), TICKED) == ["Tick"]


def test_kinds_that_are_named_are_all_that_is_shown() -> None:
    assert shown(Wanted(Filter(), ["Cleared"]), REPORTED) == ["Cleared"]
    assert shown(Wanted(Filter(), ["Tick"]), TICKED) == ["Tick"]


def test_a_filter_takes_only_its_own() -> None:
    assert shown(Wanted(Filter(tenant="other")), REPORTED) == []
    assert shown(Wanted(Filter(replica="r")), REPORTED) == ["Alive", "Cleared"]
    assert shown(Wanted(Filter(replica="r"), control=True), TICKED) == []


def test_a_record_is_told_with_its_place() -> None:
    (record, _) = Wanted(Filter()).records(3, REPORTED)
    assert (record.partition, record.sequence, record.replica, record.incarnation) == (3, 7, "r", "i")


def test_what_cannot_be_read_is_no_trouble() -> None:
    for hostile in (
        StreamMessage("ic.ev.1.0", b"\xc1", Position(1, 1, 1), {}, 0),
        StreamMessage(OF_REPLICA, b"\xc1", Position(1, 1, 1), {}, 0),
    ):
        shown(Wanted(Filter(), control=True), hostile)
