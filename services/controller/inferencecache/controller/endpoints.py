"""Addresses of remote stores as people write them [ADM-38, ADM-68..70]."""

from __future__ import annotations

import re
from typing import Final

_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_GREATEST_PORT: Final = 65535


def problem_of_endpoint(endpoint: str) -> str:
    """What keeps a text from being `host:port`, judged without the white space around it; empty if
    nothing does [ADM-38].
    """
    address = endpoint.strip()
    if not address:
        return "is empty; write host:port"
    if "://" in address:
        return "must not have a scheme; write host:port alone"
    if any(character.isspace() or not character.isprintable() for character in address):
        return "must not contain white space or control characters"
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or any(mark in bare for mark in "[]") or (":" in bare and not bracketed):
        return "must have the form host:port, an IPv6 address in brackets"
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= _GREATEST_PORT:
        return f"the port must be a number from 1 to {_GREATEST_PORT}"
    return ""


def namespace_of_endpoint(endpoint: str) -> str:
    """The namespace of the in-cluster Service that an address names, empty for every other [ADM-69]."""
    address = endpoint.strip().lower()
    address = address.partition("://")[2] if "://" in address else address
    address = re.split(r"[/?]", address, maxsplit=1)[0]
    before, colon, after = address.rpartition(":")
    host = before if colon and "." not in after else address
    host = host.removesuffix(".").removesuffix(".cluster.local")
    labels = host.removesuffix(".svc").split(".")
    if not host.endswith(".svc") or len(labels) < 2 or not all(labels):
        return ""
    return labels[-1]
