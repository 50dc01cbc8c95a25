"""Choosing TCP ports: the well-known one where it is free, else any free one.

A process that is started again needs the port it had. So ports are below those that systems give to
outgoing connections: while nobody listens, such a connection could take the port, and one to that very
port could even be its own other end.

Between the choice and the process that listens others choose too. So whoever chooses here keeps a name for
each port, which the system takes away with them, and takes no port whose name somebody else has.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import weakref
from contextlib import closing
from typing import Final

LOWEST_PORT: Final = 15_000
END_OF_PORTS: Final = 32_768
"""Where Linux begins to take ports for outgoing connections; other systems begin higher."""


class Ports:
    """Hands out each port at most once, and as long as it lives no other one does (on Linux). Without
    `well_known` every port is just a free one.
    """

    def __init__(self, host: str = "127.0.0.1", *, well_known: bool = True) -> None:
        self._host = host
        self._well_known = well_known
        self._taken: set[int] = set()
        self.replaced: dict[int, int] = {}
        """Well-known ports that somebody else uses, and what is used instead."""

    def take(self, preferred: int) -> int:
        """A port that nobody listens on now."""
        if self._well_known and self._may_have(preferred):
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
            if self._may_have(port):
                return port

    def _may_have(self, port: int) -> bool:
        return port not in self._taken and self._is_free(port) and self._reserve(port)

    def _reserve(self, port: int) -> bool:
        """Names of this kind are as machine-wide as ports are, and gone with their last descriptor."""
        if sys.platform != "linux":
            return True
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as name:
            try:
                name.bind(f"\0inferencecache/port/{self._host}/{port}")
            except OSError:
                return False
            weakref.finalize(self, os.close, name.detach())
        return True

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
