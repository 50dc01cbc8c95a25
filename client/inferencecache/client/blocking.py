"""Lookups that block the calling thread; threads may share a client."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import grpc

from inferencecache.client.channels import DEADLINE_S, OPTIONS, Turns
from inferencecache.client.hint import INVALID_REQUEST, UNREACHABLE, Hint, hint_of, hint_without_answer
from inferencecache.client.prompt import Prompt, request_of
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub


class Client:
    """A client of routers at `addresses`, each HOST:PORT; they are asked in turn, and the next one where one
    cannot be reached. `tenant` is by convention the namespace of the engine pods.

    `tls` are the credentials of `grpc.ssl_channel_credentials`; without them connections are plain.
    """

    def __init__(
        self,
        *addresses: str,
        tenant: str,
        hash_scheme: str = "vllm",
        deadline_s: float = DEADLINE_S,
        tls: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._tenant = tenant
        self._hash_scheme = hash_scheme
        self._deadline_s = deadline_s
        self._channels = [
            grpc.insecure_channel(address, OPTIONS)
            if tls is None
            else grpc.secure_channel(address, tls, OPTIONS)
            for address in addresses
        ]
        self._turns = Turns([InferenceCacheStub(channel) for channel in self._channels])
        self._is_closed = False

    def lookup(self, model: str, prompt: Prompt, *, deadline_s: float | None = None) -> Hint:
        """Where to send the prompt. Never raises: what fails, or takes longer than the deadline in
        seconds, is a hint without replicas.
        """
        request = request_of(model, self._tenant, self._hash_scheme, prompt)
        if request is None:
            return Hint(INVALID_REQUEST)
        until_s = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        hint = Hint(UNREACHABLE)
        for stub in self._turns.take():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
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
