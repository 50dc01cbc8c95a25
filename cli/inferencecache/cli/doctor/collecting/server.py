"""A router's own word on its health, over gRPC."""

from __future__ import annotations

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferencecache.cli.doctor.facts import Health, Unreachable
from inferencecache.cli.router import RouterSettings, channel_to


async def ask_health(router: RouterSettings, limit_s: float) -> Health | Unreachable:
    """Of the whole process."""
    async with channel_to(router) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=limit_s)
        except grpc.aio.AioRpcError as error:
            return Unreachable(f"the health call fails: {error.code().name}: {error.details()}")
    return Health(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
