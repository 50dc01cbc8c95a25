"""Does a router answer gRPC?"""

from __future__ import annotations

from collections.abc import Iterator

from inferencecache.cli.doctor.facts import ServerFacts, Unreachable
from inferencecache.cli.doctor.findings import Finding, found


def check_server(facts: ServerFacts) -> Iterator[Finding]:
    """[OPS-76]."""
    health = facts.health
    if isinstance(health, Unreachable):
        yield found("SV001", facts.address, health.reason)
    elif health.status != "SERVING":
        yield found("SV002", facts.address, f"the router says {health.status}")
    else:
        yield found("SV003", facts.address, "the router says SERVING")
