"""What indexers and routers share around a partition: its references, its snapshots, and who is there.

Asyncio shells over `core.log` for the machines of `core.protocol`.
"""

from __future__ import annotations

from inferencecache.core.partitions.loading import load_snapshot
from inferencecache.core.partitions.presence import Presence
from inferencecache.core.partitions.references import References

__all__ = ["Presence", "References", "load_snapshot"]
