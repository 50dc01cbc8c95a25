"""A server with the policy and member buckets, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from inferencecache.cli.policies.store import PolicyStore
from inferencecache.core.log import Log
from inferencecache.core.log.assets import ensure_assets
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.layout import Layout
from tests.support.nats import NatsServer


@pytest.fixture
async def log(nats_server: NatsServer) -> AsyncIterator[Log]:
    """A connection to a server on which an indexer has run."""
    opened = await Log.connect(NatsSettings(nats_server.url, insecure=True), name="test", timeout_s=10)
    await ensure_assets(opened, Layout(partitions=1))
    yield opened
    await opened.close()


@pytest.fixture
def store(log: Log) -> PolicyStore:
    """The policy of that server."""
    return PolicyStore(log)
