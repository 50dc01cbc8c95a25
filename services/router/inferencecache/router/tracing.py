"""Calls as spans, below what their caller traces. Installed only where traces are exported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from inferencecache.core.service import tracing

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]  # no type parameters at run time
    Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]


class CallTracing(grpc.aio.ServerInterceptor):
    """Traces the calls of one service: not the health checks, of which there is one every few seconds."""

    def __init__(self, service: str) -> None:
        self._prefix: Final = f"/{service}/"
        self._service: Final = service

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(self._prefix):
            return handler
        parent = str(dict(handler_call_details.invocation_metadata).get(tracing.TRACEPARENT, ""))
        name = method.removeprefix(self._prefix)
        attributes = {"rpc.system": "grpc", "rpc.service": self._service, "rpc.method": name}

        def traced(behaviour: Callable[..., Any]) -> Callable[[Any, Any], Awaitable[Any]]:
            async def call(request: object, context: object) -> object:
                with tracing.served(method.removeprefix("/"), parent, attributes):
                    return await behaviour(request, context)

            return call

        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(traced(handler.stream_unary))
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(traced(handler.unary_stream))
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(traced(handler.unary_unary))
        return handler
