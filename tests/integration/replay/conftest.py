"""A data plane of the test's own, and the command that replays its log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from inferencecache.cli.app import app
from tests.support.dataplane import DataPlane
from tests.support.nats import NatsServer


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer, which was asked for as JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its answer of one JSON object a line."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def plane(nats_server: NatsServer) -> AsyncIterator[DataPlane]:
    plane = DataPlane(nats_server)
    yield plane
    plane.raise_failures()
    await plane.close()


@pytest.fixture
def replay(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Runs `inferencecache replay` over the live log, in this process, whose indexers log elsewhere."""
    for module in ("connected", "commands.replay"):
        monkeypatch.setattr(f"inferencecache.cli.{module}.configure_logging", lambda *_: None)

    async def run(*arguments: str) -> Ran:
        result = await asyncio.to_thread(
            CliRunner().invoke, app, ["replay", *arguments, "--nats-url", nats_server.url]
        )
        return Ran(result.exit_code, result.stdout, result.stderr)

    with capture_logs():
        yield run
