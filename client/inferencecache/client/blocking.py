"""Lookups that block the calling thread; threads may share a client."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import grpc

from inferencecache.client.channels import OPTIONS
from inferencecache.client.hint import INVALID_REQUEST, UNREACHABLE, Hint, hint_of, hint_without_answer
from inferencecache.client.prompt import Prompt
from inferencecache.client.routers import RouterClient
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub


class Client(RouterClient[grpc.Channel, InferenceCacheStub]):
    """Lookups that block; arguments are those of `RouterClient`."""

    @staticmethod
    def _connected(address: str, tls: grpc.ChannelCredentials | None) -> grpc.Channel:
        if tls is None:
            return grpc.insecure_channel(address, OPTIONS)
        return grpc.secure_channel(address, tls, OPTIONS)

    @staticmethod
    def _stub_of(channel: grpc.Channel) -> InferenceCacheStub:
        return InferenceCacheStub(channel)

    def lookup(self, model: str, prompt: Prompt, *, deadline_s: float | None = None) -> Hint:
        """Where to send the prompt. Never raises: what fails, or takes longer than the deadline in
        seconds, is a hint without replicas.
        """
        request = self._request(model, prompt)
        if request is None:
            return Hint(INVALID_REQUEST)
        hint = Hint(UNREACHABLE)
        for stub, left_s in self._asked_in_turn(deadline_s):
            try:
                return hint_of(stub.LookupRoute(request, timeout=left_s))
            except grpc.RpcError as error:
                # What is raised has a code, which its declared type does not say.
                hint = hint_without_answer(getattr(error, "code", _no_code)())
            except ValueError:
                if not self._is_closed:
                    raise
        return hint

    def close(self) -> None:
        """Close the connections; lookups that run or are begun after it are answered as by nobody."""
        self._is_closed = True
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _no_code() -> None:
    """Of a failure that is no answer's."""
