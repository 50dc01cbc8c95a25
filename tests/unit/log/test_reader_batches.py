"""When a reader hands over what has arrived, over a connection that is played by the test."""

from __future__ import annotations

import asyncio
from typing import cast

from inferencecache.core.log.connection import Log
from inferencecache.core.log.reader import Reader, Start, StreamMessage
from tests.support.played import Arrived, PlayedLog


async def test_a_message_is_handed_over_though_a_word_of_the_server_came_right_behind_it() -> None:
    log, read = PlayedLog(), list[StreamMessage]()
    reader = Reader(cast("Log", log), "S", Start.OLDEST, read.extend, lambda _: None)
    running = asyncio.create_task(reader.run())
    await log.asked_for_messages.wait()
    log.arrive(
        Arrived(reply="$JS.ACK.S.c.1.1.1.1000.0", data=b"policy"),
        Arrived(headers={"Status": "100", "Description": "Idle Heartbeat"}),
    )
    assert [message.payload for message in read] == [b"policy"]
    reader.stop()
    await running
