"""`ExternalProcessor.Process`: one stream for each HTTP request, which never ends in an error.

A stream that ends in an error fails the proxy's request unless it is told otherwise; one that just ends
lets it go on without us. So whatever goes wrong here ends the stream cleanly.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from inferencecache.core.service import get_logger
from inferencecache.extproc.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from inferencecache.router.gateway.choosing import Choosing, Visit
from inferencecache.router.gateway.exchange import Exchange

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"

log = get_logger("gateway")


class Processing:
    """The service; `body_limit` in bytes, and `bodies_limit` those of all bodies that wait at once."""

    def __init__(
        self, choosing: Choosing, body_limit: int, bodies_limit: int, *, shows_reasons: bool
    ) -> None:
        self._choosing = choosing
        self._body_limit = body_limit
        self._bodies_limit = bodies_limit
        self._held = 0
        self._shows_reasons = shows_reasons

    def handler(self) -> grpc.GenericRpcHandler:
        """The call by name, for a server."""
        call: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._call)
        return grpc.method_handlers_generic_handler(SERVICE, {"Process": call})

    async def _call(
        self, payloads: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        try:
            # Closed here and now, also where the proxy has gone: what it asked about is over then.
            async with aclosing(self.process(payloads)) as responses:
                async for response in responses:
                    yield response.SerializeToString()
        except DecodeError:
            log.warning("gateway_message_unreadable")
        except Exception:
            log.exception("gateway_stream_failed")

    async def process(self, payloads: AsyncIterator[bytes]) -> AsyncGenerator[ProcessingResponse]:
        """The conversation about one request. Raises `DecodeError` for what is no message."""
        exchange = Exchange(self._body_limit, shows_reasons=self._shows_reasons)
        visit: Visit | None = None
        held = 0

        def count() -> None:
            nonlocal held
            self._held += exchange.held - held
            held = exchange.held

        try:
            async for payload in payloads:
                responses = exchange.take(ProcessingRequest.FromString(payload))
                count()
                if self._held > self._bodies_limit:
                    exchange.wait_no_longer()
                # Before it is acknowledged: nothing is heard of a stream that the proxy then gives up.
                if exchange.answered is not None and visit is not None:
                    self._choosing.answered(visit, exchange.answered)
                for response in responses:
                    yield response
                # One stream is one request, and is chosen for once: what is counted twice would never end.
                if exchange.asked is not None and visit is None:
                    visit = await self._choosing.choose(exchange.asked)
                    responses = exchange.choose(visit.chosen)
                    count()
                    for response in responses:
                        yield response
        finally:
            self._held -= held
            if visit is not None:
                self._choosing.ended(visit)
