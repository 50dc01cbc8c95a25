"""Publishers of released engines, a real server, and sidecars that must understand all they hear."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.engines.publisher import Publisher, start_publishers
from tests.support.nats import NatsServer
from tests.support.sidecar import LogTail, Running, log_tail, sidecars
from tools.engines import RELEASES, Release

NOT_UNDERSTOOD = ("malformed_batches", "malformed_events", "unknown_events", "bad_sequence_frame")
NO_METRICS = "http://127.0.0.1:9/metrics"

StartPublishers = Callable[..., Awaitable[list[Publisher]]]
Follow = Callable[..., Running]


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen


@pytest.fixture
async def start(release: Release) -> AsyncIterator[StartPublishers]:
    """`await start(ranks=2, buffer_steps=5)` starts the publishers of one engine."""
    started: list[Publisher] = []

    async def start(**how: Any) -> list[Publisher]:
        publishers = await start_publishers(release, **how)
        started.extend(publishers)
        return publishers

    yield start
    for publisher in started:
        await publisher.kill()


@pytest.fixture
async def engine(start: StartPublishers) -> Publisher:
    """An engine of one rank."""
    [publisher] = await start()
    return publisher


@pytest.fixture
async def tail(nats_server: NatsServer) -> AsyncIterator[LogTail]:
    async with log_tail(nats_server.url) as tail:
        yield tail


@pytest.fixture
async def follow(nats_server: NatsServer, release: Release) -> AsyncIterator[Follow]:
    """`follow(engine, "--flag=value", …)` starts its sidecar as an operator would, without a metrics page."""
    running: list[Running] = []
    async with sidecars(nats_server.url, f"--engine-metrics-url={NO_METRICS}") as start:

        def follow(engine: Publisher, *flags: str) -> Running:
            endpoint = f"--engine-endpoint=tcp://127.0.0.1:{engine.live_port}"
            replay = f"--replay-endpoint=tcp://127.0.0.1:{engine.replay_port}"
            started = start(endpoint, replay, f"--hash-scheme={release.package}", *flags)
            running.append(started)
            return started

        yield follow
    for sidecar in running:
        assert {name: sidecar.counter(name) for name in NOT_UNDERSTOOD} == dict.fromkeys(NOT_UNDERSTOOD, 0)
