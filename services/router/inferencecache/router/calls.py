"""gRPC calls as bytes in, bytes out.

Requests are parsed here rather than by the gRPC library, which answers `UNKNOWN` to bytes it cannot
parse where the contract says `INTERNAL` [WIRE-032]. For the same reason handlers end a call with an
error by raising `CallError` to these wrappers, never to the library: what escapes to it leaks memory
in some of its releases, and a failure nobody foresaw must not show its trace to a caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from inferencecache.core.service import get_logger

_Request = TypeVar("_Request", bound=Message)
_Context = grpc.aio.ServicerContext[Any, Any]

TAKE_LIMIT_S: Final = 30.0
"""A caller that takes nothing of a stream for so long does not read any more."""
_STALLED: Final = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    f"nothing of the stream was taken for {TAKE_LIMIT_S:.0f} s; read it, or end the call",
)

log = get_logger("grpc")


class CallError(Exception):
    """The call ends with this status; `details` is for the caller."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def unary(
    request_type: type[_Request], answer: Callable[[_Request], Awaitable[Message]]
) -> grpc.RpcMethodHandler[Any, Any]:
    """One request, one answer."""

    async def call(payload: bytes, context: _Context) -> bytes:
        with _Guard(context):
            return (await answer(_parse(request_type, payload))).SerializeToString()
        return b""

    return grpc.unary_unary_rpc_method_handler(call)


def unary_within(
    request_type: type[_Request], answer: Callable[[_Request, float | None], Awaitable[Message]]
) -> grpc.RpcMethodHandler[Any, Any]:
    """As `unary`; `answer` also gets the seconds that the caller waits at most, `None` without a deadline."""

    async def call(payload: bytes, context: _Context) -> bytes:
        with _Guard(context):
            granted_s = context.time_remaining()
            return (await answer(_parse(request_type, payload), granted_s)).SerializeToString()
        return b""

    return grpc.unary_unary_rpc_method_handler(call)


def client_stream(
    request_type: type[_Request], answer: Callable[[AsyncIterator[_Request]], Awaitable[Message]]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Requests as they arrive, one answer."""

    async def call(payloads: AsyncIterator[bytes], context: _Context) -> bytes:
        with _Guard(context):
            requests = (_parse(request_type, payload) async for payload in payloads)
            return (await answer(requests)).SerializeToString()
        return b""

    return grpc.stream_unary_rpc_method_handler(call)


def server_stream(
    request_type: type[_Request],
    answer: Callable[[_Request], AbstractAsyncContextManager[AsyncIterator[Message]]],
) -> grpc.RpcMethodHandler[Any, Any]:
    """One request, answers until the iterator ends.

    Headers are sent once the context is entered: a caller that waits for them knows that the stream has
    begun, though nothing has happened yet. For a caller that stops reading nothing is kept: the status waits
    in the library, behind the message that was not taken.
    """

    async def call(payload: bytes, context: _Context) -> None:
        with _Guard(context):
            async with answer(_parse(request_type, payload)) as messages:
                await context.send_initial_metadata(())
                async for message in messages:
                    try:
                        async with asyncio.timeout(TAKE_LIMIT_S):
                            await context.write(message.SerializeToString())
                    except TimeoutError:
                        raise CallError(*_STALLED) from None

    return grpc.unary_stream_rpc_method_handler(call)


class _Guard:
    """What is raised inside becomes the call's status; cancellation passes."""

    def __init__(self, context: _Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if isinstance(error, CallError):
            self._context.set_code(error.code)
            self._context.set_details(error.details)
        elif isinstance(error, Exception):
            log.error("grpc_call_failed", exc_info=error)
            self._context.set_code(grpc.StatusCode.INTERNAL)
            self._context.set_details("internal error; the router's log says more")
        else:
            return False
        return True


def _parse(request_type: type[_Request], payload: bytes) -> _Request:
    try:
        return request_type.FromString(payload)
    except DecodeError:
        text = f"the request is no valid {request_type.DESCRIPTOR.name}"
        raise CallError(grpc.StatusCode.INTERNAL, text) from None
