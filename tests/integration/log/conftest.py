"""Connections to the servers of a test, closed with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from inferencecache.core.log.connection import Log
from inferencecache.core.service import NatsSettings
from tests.support.nats import NatsServer

Connect = Callable[[NatsServer], Awaitable[Log]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(server)` gives a connection."""
    opened: list[Log] = []

    async def open_one(server: NatsServer) -> Log:
        log = await Log.connect(NatsSettings(server.url, insecure=True), name="test", timeout_s=10)
        opened.append(log)
        return log

    yield open_one
    for log in opened:
        await log.close()
