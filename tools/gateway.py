"""The gateway's files that the demo runs, for `deploy/examples`."""

from __future__ import annotations

from inferencecache.cli.stack.gateway import examples
from inferencecache.cli.stack.plan import HOST, ROUTERS, StackSettings


def gateway_examples() -> dict[str, str]:
    """File contents by name; a fleet of the demo's size."""
    return examples(HOST, StackSettings.engines, ROUTERS)
