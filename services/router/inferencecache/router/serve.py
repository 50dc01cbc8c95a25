"""The router as a process: listeners, the following of the index, and a stop that is bounded.

The listeners open before NATS is reached. Until the index is loaded lookups are answered with
`NO_HINT`, which a gateway understands better than a refused connection [WIRE-027].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector

from inferencecache.core.kube.access import ClusterAccessError
from inferencecache.core.service import CertificateError, HttpEndpoints, get_logger
from inferencecache.router.gateway.port import GatewayPort
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.models_dir import load_models
from inferencecache.router.server import GrpcServer
from inferencecache.router.servicer import Servicer
from inferencecache.router.settings import RouterSettings
from inferencecache.router.tls import certificate_files, grpc_credentials
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.router.views import LiveFollowing

log = get_logger("router")


async def serve(
    settings: RouterSettings,
    stop: asyncio.Event,
    follow: Callable[[RouterSettings, CollectorRegistry], LiveFollowing],
) -> int:
    """Serve until `stop` is set; answers the exit code. Raises `ListenError`, and what ends the following."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    metrics = ServerMetrics(registry)
    try:
        credentials = grpc_credentials(certificate_files(*settings.tls_files)) if settings.tls_files else None
    except CertificateError as error:
        log.error("grpc_tls_load", msg=str(error))  # noqa: TRY400 - the message says all
        return 1
    metrics.grpc_tls_enabled.set(credentials is not None)

    following = follow(settings, registry)
    tokenizing = Tokenizing(await asyncio.to_thread(load_models, settings.models_dir))
    servicer = Servicer(following, registry, metrics, tokenizing, settings.block_size)
    grpc_server = GrpcServer(
        settings.grpc_address, servicer, credentials=credentials, reflection=settings.grpc_reflection
    )
    gateway: GatewayPort | None = None
    if settings.gateway.address is not None:
        try:
            gateway = GatewayPort(
                settings.gateway.address,
                settings.gateway,
                servicer.lookup,
                tokenizing,
                settings.block_size,
                registry,
                credentials=credentials,
            )
        except ClusterAccessError as error:
            log.error("gateway_cluster_access", msg=str(error))  # noqa: TRY400 - the message says all
            return 1
    http = HttpEndpoints(settings.http_address, lambda: following.ready and not stop.is_set(), registry)
    metrics.up.set(1)
    stopped = asyncio.ensure_future(stop.wait())
    running: asyncio.Future[None] | None = None
    try:
        await http.start()
        await grpc_server.start()
        if gateway is not None:
            await gateway.start()
        running = asyncio.ensure_future(following.run(grpc_server.address, servicer.lookup.explain))
        log.info(
            "router_started",
            grpc_address=grpc_server.address,
            http_port=http.port,
            grpc_tls=credentials is not None,
            nats=settings.nats.address,
        )
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        return 0
    finally:
        log.info("graceful_shutdown_started")
        metrics.up.set(0)
        servicer.stop()
        stopping = [grpc_server.stop(), http.stop()]
        if gateway is not None:
            stopping.append(gateway.stop())
        await asyncio.gather(*stopping)
        stopped.cancel()
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        log.info("graceful_shutdown_done")
