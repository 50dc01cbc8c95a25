"""Reports become records, counters become metrics, and warnings become few."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from prometheus_client import generate_latest

from inferencecache.core.service import Queue
from inferencecache.kvevent_subscriber.diary import MAX_TEXT, MAX_WAITING, Diary, Warned
from inferencecache.kvevent_subscriber.records import records_of
from inferencecache.kvevent_subscriber.reports import (
    Added,
    AllKnown,
    Cleared,
    Doubted,
    Evicted,
    Report,
    Restarted,
)
from inferencecache.kvevent_subscriber.telemetry import COUNTERS, Gauges, registry_of
from inferencecache.kvevent_subscriber.warning_log import WarningLog
from inferencecache.schemas import records
from inferencecache.schemas.ids import AdapterId, HashScheme

SCHEME = HashScheme("sglang")
LORA = AdapterId("sql-lora")


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


@pytest.mark.rule("SUB-004", "SUB-005", "SUB-006", "SUB-112")
def test_reports_are_packed_in_order() -> None:
    reports: list[Report] = [
        Added(LORA, 1, [key(1), key(2)], [16, 32]),
        Evicted(AdapterId(""), [key(3)]),
        Cleared(),
        Doubted(3),
        AllKnown(),
    ]
    assert records_of(reports, SCHEME) == [
        records.Stored(SCHEME, LORA, 1, 8, key(1) + key(2), b"\x10\0\0\0\x20\0\0\0"),
        records.Evicted(AdapterId(""), 8, key(3)),
        records.Cleared(),
        records.Gap(3),
        records.Complete(),
    ]


@pytest.mark.rule("SUB-112")
def test_a_long_report_is_several_records() -> None:
    many = [key(number) for number in range(5000)]
    stored = records_of([Added(LORA, 2, many, list(range(5000)))], SCHEME)
    evicted = records_of([Evicted(LORA, many)], SCHEME)
    assert [len(record.hashes) // 8 for record in stored if isinstance(record, records.Stored)] == [4096, 904]
    assert [len(record.hashes) // 8 for record in evicted if isinstance(record, records.Evicted)] == [
        4096,
        904,
    ]


def test_a_restart_is_no_record() -> None:
    with pytest.raises(ValueError, match="begin a new incarnation"):
        records_of([Restarted()], SCHEME)


@pytest.mark.rule("SUB-188")
def test_every_counter_is_on_the_page_from_the_start_and_replicas_add_up() -> None:
    counted: Counter[tuple[str, str]] = Counter({("messages", ""): 3, ("malformed_events", "hash_type"): 1})
    queue = Queue("outbox_records", 2, 9)
    registry = registry_of([lambda: counted] * 2, lambda: Gauges(1, 16, 2, 5.5), lambda: [queue])
    page = generate_latest(registry).decode()
    for measure in COUNTERS:
        assert f"# TYPE {measure.series} counter" in page
    assert "inferencecache_subscriber_messages_total 6.0" in page
    assert 'inferencecache_subscriber_malformed_events_total{reason="hash_type"} 2.0' in page
    assert "inferencecache_subscriber_duplicates_total 0.0" in page
    assert "inferencecache_subscriber_block_size 16.0" in page
    assert "inferencecache_subscriber_last_event_timestamp_seconds 5.5" in page
    assert 'inferencecache_subscriber_queue_size{queue="outbox_records"} 2.0' in page
    assert 'inferencecache_subscriber_queue_limit{queue="outbox_records"} 9.0' in page


class Shown:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, *args: Any, **fields: object) -> None:
        self.lines.append((event, fields))


@pytest.mark.rule("SUB-181")
def test_a_repeated_warning_is_shown_once_in_ten_seconds_with_a_count() -> None:
    shown = Shown()
    log = WarningLog(shown)
    for now in (0.0, 1.0, 9.9, 10.0, 12.0):
        log.show([Warned("no_tokens", "text", {"tokens": 0}), Warned(f"x:{now}", "other", {})], now)
    assert [line for line in shown.lines if line[0] == "no_tokens"] == [
        ("no_tokens", {"msg": "text", "tokens": 0}),
        ("no_tokens", {"msg": "text", "tokens": 0, "suppressed": 2}),
    ]
    assert len([line for line in shown.lines if line[0] == "x"]) == 5


def test_a_diary_that_nobody_reads_does_not_grow() -> None:
    diary = Diary()
    for number in range(10_000):
        diary.warn("reason", "text")
        diary.warn_once("value", number, "text")
    assert len(diary.drain()) == MAX_WAITING
    assert diary.drain() == []


@pytest.mark.rule("SUB-002")
def test_of_a_text_that_an_engine_makes_up_only_the_beginning_is_kept() -> None:
    diary = Diary()
    for ending in ("a", "b"):
        diary.warn_once("ignored_medium", "x" * 100_000 + ending, "text", medium="x" * 100_000 + ending)
    [warned] = diary.drain()
    assert warned == Warned(f"ignored_medium:{'x' * MAX_TEXT}", "text", {"medium": "x" * MAX_TEXT})
