"""A router over a real log: a follower of it with a gRPC server and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from prometheus_client import CollectorRegistry

from inferencecache.router.following import IndexFollowing
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.server import GrpcServer
from inferencecache.router.servicer import Servicer
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub


class LiveRouter:
    """A complete router and a client of it."""

    def __init__(
        self,
        following: IndexFollowing,
        servicer: Servicer,
        registry: CollectorRegistry,
        channel: grpc.aio.Channel,
    ) -> None:
        self.following = following
        self.servicer = servicer
        self.registry = registry
        self.stub = InferenceCacheStub(channel)


@asynccontextmanager
async def served_over(following: IndexFollowing) -> AsyncIterator[LiveRouter]:
    registry = CollectorRegistry()
    servicer = Servicer(following, registry, ServerMetrics(registry), Tokenizing({}), 16)
    server = GrpcServer(("127.0.0.1", 0), servicer)
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield LiveRouter(following, servicer, registry, channel)
    servicer.stop()
    await server.stop()
