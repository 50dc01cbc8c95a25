"""Addresses of an engine's sockets: one publisher a rank, a replay socket beside each.

With data parallelism a rank's ports are the base ports plus its number [SUB-020].
"""

from __future__ import annotations

import re
from typing import Final

MAX_PORT: Final = 65535
_TCP: Final = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>[0-9]{1,5})")


class EndpointError(ValueError):
    """An address that no socket can use; the text names what to write instead."""


def check_endpoint(endpoint: str) -> str:
    """The endpoint as it is. Raises `EndpointError`."""
    if endpoint.startswith("tcp://"):
        match = _TCP.fullmatch(endpoint)
        if match is None or not 0 < int(match["port"]) <= MAX_PORT:
            raise EndpointError(f"{endpoint!r} is no TCP endpoint; write tcp://HOST:PORT")
    elif not re.match(r"(ipc|inproc)://.", endpoint):
        raise EndpointError(f"{endpoint!r} is no ZMQ endpoint; write tcp://HOST:PORT or ipc://PATH")
    return endpoint


def of_rank(endpoint: str, rank: int) -> str:
    """Endpoint of a rank, given that of rank 0. Raises `EndpointError` where there is none."""
    if rank == 0:
        return endpoint
    if endpoint.startswith("tcp://"):
        return _with_port(endpoint, rank)
    if endpoint.startswith("inproc://"):
        return f"{endpoint}_dp{rank}"
    raise EndpointError(f"{endpoint!r} has no place for more than one rank; write tcp://HOST:PORT")


def replay_beside(endpoint: str) -> str:
    """Where a single rank's replay socket is by custom: the next port; empty if there is none [SUB-059]."""
    if not endpoint.startswith("tcp://") or binds(endpoint):
        return ""
    try:
        return _with_port(endpoint, 1)
    except EndpointError:
        return ""


def binds(endpoint: str) -> bool:
    """Does our side bind? So it does for engines that connect [SUB-017]."""
    match = _TCP.fullmatch(endpoint)
    return match is not None and match["host"] == "*"


def _with_port(endpoint: str, offset: int) -> str:
    match = _TCP.fullmatch(check_endpoint(endpoint))
    port = 0 if match is None else int(match["port"]) + offset
    if match is None or port > MAX_PORT:
        raise EndpointError(f"{endpoint!r} has no port {port}; choose a lower base port")
    return f"tcp://{match['host']}:{port}"
