"""Ports for programs that cannot choose their own."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port that nobody uses."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many in a row, below those that systems give to outgoing connections meanwhile."""
    while True:
        first = random.randrange(20_000, 32_000)
        ports = list(range(first, first + count))
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in ports:
                probes.enter_context(socket.socket()).bind(("0.0.0.0", port))
            return ports
