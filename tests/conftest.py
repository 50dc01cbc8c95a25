"""Fixtures that several suites share; a suite's own fixtures live in its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.nats import NatsServer

pytest_plugins = ["tests.support.suites", "tests.support.turns"]

# A time limit for each example would fail on a busy machine and prove nothing.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture
def nats_servers(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Factory of started servers, `nats_servers(extra="…")`; all of them stop with the test."""
    started: list[NatsServer] = []

    def start(*, extra: str = "", max_file_store: str = "64GB") -> NatsServer:
        server = NatsServer(tmp_path / f"nats-{len(started)}", extra=extra, max_file_store=max_file_store)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def nats_server(nats_servers: Callable[..., NatsServer]) -> NatsServer:
    """One started server of the test's own."""
    return nats_servers()


@pytest.fixture(scope="session")
def shared_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for a whole run, for tests that neither restart it nor mind what others leave behind."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server
