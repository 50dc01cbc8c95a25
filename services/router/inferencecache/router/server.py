"""The gRPC listener: the service, health and reflection on one port."""

from __future__ import annotations

from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from inferencecache.core.service import ListenError, tracing
from inferencecache.router.reflection import reflection_handlers
from inferencecache.router.servicer import SERVICE, Servicer
from inferencecache.router.tracing import CallTracing

RECEIVE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Largest request, after decompression [WIRE-200]."""
STOP_LIMIT_S: Final = 5.0
_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", RECEIVE_LIMIT_BYTES),
    ("grpc.max_send_message_length", -1),
    # Otherwise a second process could listen on the same port and take half of the calls.
    ("grpc.so_reuseport", 0),
)


class GrpcServer:
    """Serves from `start` to `stop`; keepalive and stream limits are the library's [WIRE-201]."""

    def __init__(
        self,
        address: tuple[str, int],
        servicer: Servicer,
        *,
        credentials: grpc.ServerCredentials | None = None,
        reflection: bool = True,
    ) -> None:
        self._address = address
        self._servicer = servicer
        self._credentials = credentials
        self._reflection = reflection
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """HOST:PORT as it is bound, also when the system chose the port."""
        host = self._address[0]
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises `ListenError` when the address cannot be had [WIRE-203]."""
        interceptors = [CallTracing(SERVICE)] if tracing.is_tracing() else None
        server = grpc.aio.server(options=_OPTIONS, interceptors=interceptors)
        server.add_generic_rpc_handlers((self._servicer.handler(),))
        # Its "" is SERVING from the start and it knows no other name [WIRE-220].
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
        if self._reflection:
            server.add_generic_rpc_handlers(reflection_handlers((SERVICE, _HEALTH)))
        host, port = self._address
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._credentials is None:
                self._port = server.add_insecure_port(target)
            else:
                self._port = server.add_secure_port(target, self._credentials)
        except RuntimeError as error:
            raise ListenError("--grpc-bind-address", host, port, str(error)) from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Accept no more calls, give running ones 5 s [WIRE-202]."""
        if self._server is not None:
            await self._server.stop(STOP_LIMIT_S)
