"""What indexers and routers share around a partition: its references, its snapshots, and who is there.

Asyncio shells over `core.log` for the machines of `core.protocol`. What needs the index itself (`loading`,
`messages`) is imported from its module, so that whoever only takes part loads no compiled kernels.
"""

from __future__ import annotations

from inferencecache.core.partitions.presence import Presence
from inferencecache.core.partitions.references import References
from inferencecache.core.partitions.tasks import Tasks

__all__ = ["Presence", "References", "Tasks"]
