"""What a source of endpoints told last, for tests that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inferencecache.core.gateway import Endpoint, EndpointId
from inferencecache.router.gateway.sources import EndpointSource
from inferencecache.schemas.ids import ReplicaId
from tests.support.waiting import eventually


def endpoint(address: str, replica: str, life: str = "", *, ready: bool = True) -> Endpoint:
    return Endpoint(EndpointId(address, ReplicaId(replica), life), ready)


class Told:
    """The endpoints of a source that runs."""

    def __init__(self) -> None:
        self.endpoints: tuple[Endpoint, ...] | None = None

    def __call__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints

    async def are(self, *expected: Endpoint, within_s: float = 1.0) -> None:
        """Return once exactly these were told."""
        wanted = set(expected)
        await eventually(
            lambda: self.endpoints is not None and set(self.endpoints) == wanted,
            within_s=within_s,
            what=f"{wanted}, instead of {self.endpoints},",
        )


@asynccontextmanager
async def following(source: EndpointSource) -> AsyncIterator[Told]:
    """Run a source meanwhile."""
    told = Told()
    running = asyncio.ensure_future(source.run(told))
    try:
        yield told
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
