"""What both clients are made of: connections to routers, and what every request to them says."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

import grpc

from inferencecache.client.channels import DEADLINE_S, Turns
from inferencecache.client.prompt import Prompt, request_of
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest

_Channel = TypeVar("_Channel")
_Stub = TypeVar("_Stub")


class RouterClient(ABC, Generic[_Channel, _Stub]):
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
        self._channels = [self._connected(address, tls) for address in addresses]
        self._turns = Turns([self._stub_of(channel) for channel in self._channels])
        self._is_closed = False

    @staticmethod
    @abstractmethod
    def _connected(address: str, tls: grpc.ChannelCredentials | None) -> _Channel:
        """A connection, which is opened when it is first used."""

    @staticmethod
    @abstractmethod
    def _stub_of(channel: _Channel) -> _Stub:
        """What calls go through."""

    def _request(self, model: str, prompt: Prompt) -> LookupRouteRequest | None:
        """What is asked of whichever router; `None` for values that no message can hold."""
        return request_of(model, self._tenant, self._hash_scheme, prompt)

    def _asked_in_turn(self, deadline_s: float | None) -> Iterator[tuple[_Stub, float]]:
        """Whom to ask, and the seconds that are left for it; ends when none are."""
        until_s = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        for stub in self._turns.take():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            yield stub, left_s
