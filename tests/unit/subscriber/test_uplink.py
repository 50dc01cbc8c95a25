"""What the uplink does when the log's server will not have what it sends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from inferencecache.core.log import Log, PayloadTooLargeError
from inferencecache.core.protocol.producer import Producer
from inferencecache.kvevent_subscriber import uplink
from inferencecache.kvevent_subscriber.uplink import Uplink
from inferencecache.schemas.ids import HashScheme
from inferencecache.schemas.records import Begin
from tests.support.waiting import eventually


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


@pytest.mark.rule("SUB-114", "SUB-117")
async def test_a_server_that_takes_nothing_is_asked_again_after_a_while_and_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = SmallServer()
    sender = Uplink(Producer(Begin("", "", HashScheme("vllm"), 16)), "vllm-0", lambda now: [])
    sender.attach(cast("Log", server))
    sender.placed("ic.ev.1.0.t.m.vllm-0.e")
    for _ in range(100):
        await asyncio.sleep(0)
    assert server.asked == 1
    await sender.close()
    monkeypatch.setattr(uplink, "TOO_LARGE_PAUSE_S", 0.01)
    sender.placed("ic.ev.2.0.t.m.vllm-0.e")
    await eventually(lambda: server.asked == 4)
    await sender.close()
