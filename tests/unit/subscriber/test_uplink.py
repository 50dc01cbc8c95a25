"""What the uplink does when the log's server will not have what it sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from inferencecache.core.log import Log, PayloadTooLargeError, PubAck
from inferencecache.core.protocol.producer import Group, Producer
from inferencecache.kvevent_subscriber import uplink
from inferencecache.kvevent_subscriber.alarm import Alarm
from inferencecache.kvevent_subscriber.failures import Failures
from inferencecache.kvevent_subscriber.uplink import Uplink
from inferencecache.schemas.ids import HashScheme
from inferencecache.schemas.records import Batch, Begin, Complete, Stats, decode_batch
from tests.support.waiting import a_turn, eventually


class SmallServer:
    """A log and its publisher that take nothing."""

    payload_limit = 0
    address = "nats://small"

    def __init__(self) -> None:
        self.publisher = self
        self.asked = 0

    async def publish(self, subject: str, payload: bytes, **more: Any) -> None:
        self.asked += 1
        raise PayloadTooLargeError(subject, len(payload), 0)


class BrokenServer(SmallServer):
    """One whose publisher has an error that nobody thought of."""

    async def publish(self, subject: str, payload: bytes, **more: Any) -> None:
        raise ZeroDivisionError


class SlowServer(SmallServer):
    """One that stores a message when it is told to."""

    payload_limit = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.stores = asyncio.Event()
        self.stored: list[Batch] = []

    async def publish(self, subject: str, payload: bytes, **more: Any) -> PubAck:  # type: ignore[override]
        await self.stores.wait()
        self.stored.append(decode_batch(payload).batch)
        return PubAck("IC_EVENTS_1_0", len(self.stored))


def uplink_of(failures: Failures, state: Sequence[Group] = ()) -> Uplink:
    producer = Producer(Begin("", "", HashScheme("vllm"), 16))
    return Uplink(producer, "vllm-0", lambda now: list(state), failures)


@pytest.mark.rule("SUB-185")
async def test_an_unexpected_error_of_a_publish_ends_what_goes_on_beside_it() -> None:
    failures = Failures()
    sender = uplink_of(failures)
    sender.attach(cast("Log", BrokenServer()))
    sender.placed("ic.ev.1.0.t.m.vllm-0.e")
    with pytest.raises(ZeroDivisionError):
        await failures.guard(for_ever())
    with pytest.raises(ZeroDivisionError):
        await sender.drain()
    await sender.close()


@pytest.mark.rule("SUB-185")
async def test_an_unexpected_error_of_a_timer_ends_what_goes_on_beside_it() -> None:
    failures = Failures()

    def ring() -> None:
        raise ZeroDivisionError

    Alarm(ring, failures).set(0.0)
    with pytest.raises(ZeroDivisionError):
        await failures.guard(for_ever())


async def test_work_that_is_cancelled_is_no_failure() -> None:
    failures = Failures()
    failures.start(for_ever()).cancel()
    await failures.guard(a_turn())


@pytest.mark.rule("SUB-183")
async def test_at_the_end_a_begin_on_its_way_is_waited_for_and_what_is_known_follows() -> None:
    server = SlowServer()
    sender = uplink_of(Failures(), [Group(0.0, [Complete()])])
    sender.attach(cast("Log", server))
    sender.placed("ic.ev.1.0.t.m.vllm-0.e")
    draining = asyncio.create_task(sender.drain())
    for _ in range(10):
        await a_turn()
    assert not draining.done()
    server.stores.set()
    async with asyncio.timeout(5):
        await draining
    assert [type(batch.records[0]) for batch in server.stored] == [Begin, Complete]
    await sender.close()


async def test_a_sample_counts_as_a_record_once_the_log_has_it() -> None:
    server = SlowServer()
    sender = uplink_of(Failures())
    sender.attach(cast("Log", server))
    sender.placed("ic.ev.1.0.t.m.vllm-0.e")
    sender.submit_stats(Stats())
    assert sender.stats_delivered == 0
    server.stores.set()
    await eventually(lambda: sender.stats_delivered == 1)
    assert sender.stats_stored.is_set()
    await sender.close()


@pytest.mark.rule("SUB-114", "SUB-117")
async def test_a_server_that_takes_nothing_is_asked_again_after_a_while_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SmallServer()
    sender = uplink_of(Failures())
    sender.attach(cast("Log", server))
    sender.placed("ic.ev.1.0.t.m.vllm-0.e")
    for _ in range(100):
        await a_turn()
    assert server.asked == 1
    await sender.close()
    monkeypatch.setattr(uplink, "TOO_LARGE_PAUSE_S", 0.01)
    sender.placed("ic.ev.2.0.t.m.vllm-0.e")
    await eventually(lambda: server.asked == 4)
    await sender.close()


async def for_ever() -> None:
    await asyncio.Event().wait()
