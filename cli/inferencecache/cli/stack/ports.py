"""Choosing TCP ports: the well-known one where it is free, else any free one.

A process that is started again needs the port it had. So ports are below those that systems give to
outgoing connections: while nobody listens, such a connection could take the port, and one to that very
port could even be its own other end.
"""

from __future__ import annotations

import random
import socket
from contextlib import closing
from typing import Final

LOWEST_PORT: Final = 15_000
END_OF_PORTS: Final = 32_768
"""Where Linux begins to take ports for outgoing connections; other systems begin higher."""


class Ports:
    """Hands out each port at most once. Without `well_known` every port is just a free one."""

    def __init__(self, host: str = "127.0.0.1", *, well_known: bool = True) -> None:
        self._host = host
        self._well_known = well_known
        self._taken: set[int] = set()
        self.replaced: dict[int, int] = {}
        """Well-known ports that somebody else uses, and what is used instead."""

    def take(self, preferred: int) -> int:
        """A port that nobody listens on now."""
        if self._well_known and preferred not in self._taken and self._is_free(preferred):
            port = preferred
        else:
            port = self._any_free()
            if self._well_known:
                self.replaced[preferred] = port
        self._taken.add(port)
        return port

    def _any_free(self) -> int:
        while True:
            port = random.randrange(LOWEST_PORT, END_OF_PORTS)
            if port not in self._taken and self._is_free(port):
                return port

    def _is_free(self, port: int) -> bool:
        """A listener on any address counts, also one that lets others share its port."""
        for host in (self._host, ""):
            with closing(socket.socket()) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError:
                    return False
        return True
