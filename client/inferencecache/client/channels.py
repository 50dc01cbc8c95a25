"""Which router is asked, and over what: connections are made once and take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

DEADLINE_S: Final = 0.05
"""A hint that comes later has cost more than it saves."""
OPTIONS: Final = (
    # A router that comes back is used again within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

_Stub = TypeVar("_Stub")


class Turns(Generic[_Stub]):
    """Stubs of all routers, beginning with another one each time."""

    def __init__(self, stubs: Sequence[_Stub]) -> None:
        if not stubs:
            raise ValueError("a client needs the address of at least one router, as HOST:PORT")
        self._stubs = tuple(stubs)
        self._next = 0

    def take(self) -> Sequence[_Stub]:
        """All, in the order in which they are to be asked."""
        first = self._next % len(self._stubs)
        self._next = first + 1
        return self._stubs[first:] + self._stubs[:first]
