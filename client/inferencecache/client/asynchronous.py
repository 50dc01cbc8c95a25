"""Lookups on an event loop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc
import grpc.aio

from inferencecache.client.channels import OPTIONS
from inferencecache.client.hint import INVALID_REQUEST, UNREACHABLE, Hint, hint_of, hint_without_answer
from inferencecache.client.prompt import Prompt
from inferencecache.client.routers import RouterClient
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub

if TYPE_CHECKING:
    from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheAsyncStub


class AsyncClient(RouterClient[grpc.aio.Channel, "InferenceCacheAsyncStub"]):
    """Lookups that are awaited; arguments are those of `RouterClient`."""

    @staticmethod
    def _connected(address: str, tls: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
        if tls is None:
            return grpc.aio.insecure_channel(address, OPTIONS)
        return grpc.aio.secure_channel(address, tls, OPTIONS)

    @staticmethod
    def _stub_of(channel: grpc.aio.Channel) -> InferenceCacheAsyncStub:
        return InferenceCacheStub(channel)

    async def lookup(self, model: str, prompt: Prompt, *, deadline_s: float | None = None) -> Hint:
        """Where to send the prompt. Never raises but for cancellation: what fails, or takes longer than the
        deadline in seconds, is a hint without replicas.
        """
        request = self._request(model, prompt)
        if request is None:
            return Hint(INVALID_REQUEST)
        hint = Hint(UNREACHABLE)
        for stub, left_s in self._asked_in_turn(deadline_s):
            try:
                return hint_of(await stub.LookupRoute(request, timeout=left_s))
            except grpc.aio.AioRpcError as error:
                hint = hint_without_answer(error.code())
            except grpc.aio.UsageError:
                if not self._is_closed:
                    raise
            except asyncio.CancelledError:
                # Closing cancels the calls that run, which is not what was asked of who awaits them.
                task = asyncio.current_task()
                if not self._is_closed or task is None or task.cancelling():
                    raise
        return hint

    async def close(self) -> None:
        """Close the connections; lookups that run or are begun after it are answered as by nobody."""
        self._is_closed = True
        await asyncio.gather(*(channel.close() for channel in self._channels))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
