"""Routers of the test's own over a real log: followers with a gRPC server and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.support.dataplane import DataPlane
from tests.support.live_router import LiveRouter, served_over
from tests.support.nats import NatsServer


@pytest.fixture
async def plane(nats_server: NatsServer) -> AsyncIterator[DataPlane]:
    """Indexers and followers of the test's own."""
    plane = DataPlane(nats_server)
    yield plane
    plane.raise_failures()
    await plane.close()


@pytest.fixture
async def live(plane: DataPlane) -> AsyncIterator[Callable[[], Awaitable[LiveRouter]]]:
    """`await live()` starts a router, once an indexer runs."""
    async with AsyncExitStack() as stack:

        async def live() -> LiveRouter:
            return await stack.enter_async_context(served_over(await plane.follower()))

        yield live
