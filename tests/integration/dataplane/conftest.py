"""A data plane of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.dataplane import DataPlane
from tests.support.nats import NatsServer


@pytest.fixture
async def plane(nats_server: NatsServer) -> AsyncIterator[DataPlane]:
    plane = DataPlane(nats_server)
    yield plane
    plane.raise_failures()
    await plane.close()
