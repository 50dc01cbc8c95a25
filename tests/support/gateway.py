"""An endpoint picker in this process: a served router whose log is folded in place, and its gateway port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.gateway import Endpoint
from inferencecache.core.index.work import AssignedWork
from inferencecache.router.gateway.port import GatewayPort
from inferencecache.router.gateway.settings import GatewaySettings
from inferencecache.router.gateway.sources import Tell
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import CacheStateUpdate, PrefixEntry
from tests.support.router import FoldedLog, Router, served_router
from tests.support.waiting import eventually

MODEL, TENANT = ModelId("m"), TenantId("team")
BLOCK_SIZE = 16


class Fixed:
    """A source that tells what it is given."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)
        self.tell: Tell | None = None

    async def run(self, tell: Tell) -> None:
        self.tell = tell
        tell(self.endpoints)
        await asyncio.Event().wait()


class Picker:
    """A served one; `address` is HOST:PORT of its ext_proc service."""

    def __init__(self, router: Router, port: GatewayPort, source: Fixed) -> None:
        self.router = router
        self.source = source
        self.address = f"127.0.0.1:{port.port}"

    def tell(self, *endpoints: Endpoint) -> None:
        """The source says that these are all there are."""
        assert self.source.tell is not None
        self.source.tell(endpoints)

    async def report(self, replica: str, tokens: Sequence[int], **fields: Any) -> None:
        """The replica holds the tokens' blocks."""
        blocks = prefix_digests(tokens, BLOCK_SIZE)
        prefix = PrefixEntry(block_hashes=blocks, block_token_counts=[BLOCK_SIZE] * len(blocks))
        scope = {"tenant_id": TENANT, "model_id": MODEL, "hash_scheme": "vllm"}
        update = CacheStateUpdate(**{**scope, **fields}, replica_id=replica, prefixes=[prefix])
        await self.router.stub.ReportCacheState(iter([update]))

    def picks(self, reason: str) -> float | None:
        """Requests that were picked for with this reason."""
        return self.router.metric("inferencecache_gateway_picks_total", reason=reason)


@asynccontextmanager
async def served_picker(
    endpoints: Sequence[Endpoint],
    *,
    tokenizing: Tokenizing | None = None,
    credentials: grpc.ServerCredentials | None = None,
    **settings: Any,
) -> AsyncIterator[Picker]:
    """Start one on free ports, with `settings` of the gateway."""
    log = FoldedLog()
    log.work = AssignedWork()
    source = Fixed(endpoints)
    tokenizing = tokenizing or Tokenizing({})
    async with served_router(log, tokenizing=tokenizing) as router:
        port = GatewayPort(
            ("127.0.0.1", 0),
            # On a busy machine a lookup may take longer than it ever should.
            GatewaySettings(None, **{"tenant": TENANT, "budget_s": 20.0, **settings}),
            router.servicer.lookup,
            tokenizing,
            BLOCK_SIZE,
            router.registry,
            credentials=credentials,
            source=source,
        )
        await port.start()
        await eventually(lambda: source.tell is not None)
        try:
            yield Picker(router, port, source)
        finally:
            await port.stop()
