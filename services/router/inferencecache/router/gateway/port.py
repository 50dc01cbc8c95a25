"""The gateway's listener: the ext_proc service and its health on a port of their own.

It exists beside the router's own port because proxies reach it under other rules: who may choose where
requests go is another question than who may report what is cached.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from inferencecache.core.gateway import Endpoint
from inferencecache.core.service import ListenError, get_logger
from inferencecache.router.gateway.choosing import Choosing
from inferencecache.router.gateway.endpoint_file import EndpointFile
from inferencecache.router.gateway.processing import SERVICE, Processing
from inferencecache.router.gateway.settings import GatewaySettings
from inferencecache.router.gateway.sources import EndpointSource, Tell
from inferencecache.router.lookup import Lookup
from inferencecache.router.server import STOP_LIMIT_S
from inferencecache.router.tokenizing import Tokenizing

MOST_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""A proxy sends a body it buffered in one message, and fails the request where that is refused."""
SOURCE_RETRY_S: Final = 1.0
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
)

log = get_logger("gateway")


class GatewayPort:
    """Serves from `start` to `stop`, by what its source tells."""

    def __init__(
        self,
        address: tuple[str, int],
        settings: GatewaySettings,
        lookup: Lookup,
        tokenizing: Tokenizing,
        block_size: int,
        registry: CollectorRegistry,
        *,
        credentials: grpc.ServerCredentials | None = None,
        source: EndpointSource | None = None,
    ) -> None:
        self.port = 0
        self._address = address
        self.choosing = Choosing(settings, lookup, tokenizing, block_size, registry)
        self._settings = settings
        self._credentials = credentials
        self._source = source or source_of(settings)
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._following: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Listen and follow the source. Raises `ListenError` when the address cannot be had."""
        settings = self._settings
        processing = Processing(
            self.choosing, settings.body_limit, settings.bodies_limit, shows_reasons=settings.shows_reasons
        )
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((processing.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        host, port = self._address
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(target)
            else:
                self.port = server.add_secure_port(target, self._credentials)
        except RuntimeError as error:
            raise ListenError("--gateway-bind-address", host, port, str(error)) from error
        await self._tell_health(is_ready=False)
        await server.start()
        self._server = server
        self._following = asyncio.ensure_future(self._follow())
        log.info("gateway_started", port=self.port)

    async def stop(self) -> None:
        """Tell that it ends, follow the source no more, give running requests 5 s [WIRE-202]."""
        if self._server is None or self._following is None:
            return
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_LIMIT_S)

    async def _follow(self) -> None:
        told = asyncio.Event()

        def tell(endpoints: tuple[Endpoint, ...]) -> None:
            self.choosing.told(endpoints)
            told.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_source(tell))
            await told.wait()
            await self._tell_health(is_ready=True)

    async def _run_source(self, tell: Tell) -> None:
        """A source that breaks is begun again: endpoints that nobody keeps current end in lost requests."""
        while True:
            try:
                await self._source.run(tell)
            except Exception:
                log.exception("endpoints_not_followed")
            await asyncio.sleep(SOURCE_RETRY_S)

    async def _tell_health(self, *, is_ready: bool) -> None:
        """It is ready once it knows endpoints: without an index it still picks, by load."""
        status = health_pb2.HealthCheckResponse
        await self._health.set(LIVENESS, status.SERVING)
        for name in (READINESS, SERVICE):
            await self._health.set(name, status.SERVING if is_ready else status.NOT_SERVING)


def source_of(settings: GatewaySettings) -> EndpointSource:
    """The source that the settings name; there is one where there is a listener."""
    if settings.endpoints_file is not None:
        return EndpointFile(settings.endpoints_file)
    # Only who asks Kubernetes pays for its client.
    from inferencecache.router.gateway.kube_endpoints import PoolEndpoints, ServiceEndpoints  # noqa: PLC0415

    if settings.service:
        return ServiceEndpoints(settings.service, settings.kubeconfig)
    return PoolEndpoints(settings.pool, settings.kubeconfig)
