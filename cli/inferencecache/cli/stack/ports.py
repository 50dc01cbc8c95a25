"""Choosing TCP ports: the well-known one where it is free, else any free one."""

from __future__ import annotations

import socket
from contextlib import closing


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
            with closing(socket.socket()) as probe:
                probe.bind((self._host, 0))
                port: int = probe.getsockname()[1]
            if port not in self._taken:
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
