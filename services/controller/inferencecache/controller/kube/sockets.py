"""The sockets of connections that somebody else opens and closes, until every one is closed.

An event loop that ends leaves TLS connections open that wait for the other side to say goodbye, which a
server that does not answer never does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Final
from weakref import WeakSet

_LOOK_S: Final = 0.01
_LOOKS: Final = 100


class Sockets:
    """Makes sockets, and knows which of them are in use."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for an address as `getaddrinfo` tells it."""
        family, type_, protocol, *_ = address
        made = socket.socket(family, type_, protocol)
        self._made.add(made)
        return made

    async def end(self) -> None:
        """Let all connections end, as if the other side had ended them, and wait until they have."""
        for each in self._made:
            with contextlib.suppress(OSError):  # it is not connected any more, or not yet
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOKS):
            if all(each.fileno() < 0 for each in self._made):
                return
            await asyncio.sleep(_LOOK_S)
