"""A real server with the log's assets, an engine, and sidecars between them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.engine import Engine
from tests.support.nats import NatsServer
from tests.support.sidecar import LogTail, StartSidecar, log_tail, sidecars


@pytest.fixture
async def tail(nats_server: NatsServer) -> AsyncIterator[LogTail]:
    async with log_tail(nats_server.url) as tail:
        yield tail


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine() as engine:
        yield engine


@pytest.fixture
async def start_sidecar(nats_server: NatsServer, engine: Engine) -> AsyncIterator[StartSidecar]:
    """`start_sidecar("--flag=value", …)` starts one for the engine of the test."""
    engine_flags = (
        f"--engine-endpoint={engine.live_endpoint}",
        f"--replay-endpoint={engine.replay_endpoint}",
        f"--engine-metrics-url={engine.metrics_url}",
    )
    async with sidecars(nats_server.url, *engine_flags) as start:
        yield start
