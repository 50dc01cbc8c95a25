"""A second, larger tier behind the block cache: copies in host memory that outlive those on the device.

Every block that becomes reusable is copied here. When memory is needed, the copy that was used least
recently goes, of one prefix its end before its beginning. A request finds here what the device has
evicted, and need not compute it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from inferencecache.simengine.cache import BlockHash


class HostCache:
    """Room for `capacity` copies; no tier at all when it is 0."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._copies: OrderedDict[BlockHash, None] = OrderedDict()

    def copy(self, prefix: Sequence[BlockHash], new: Sequence[BlockHash]) -> list[BlockHash]:
        """Copy the new blocks of a prefix; answers which copies had to go, perhaps some of these."""
        self._copies.update(dict.fromkeys(new))
        self._use(prefix)
        excess = max(0, len(self._copies) - self.capacity)
        return [self._copies.popitem(last=False)[0] for _ in range(excess)]

    def leading(self, hashes: Sequence[BlockHash]) -> int:
        """How many of the first blocks are here; they count as used."""
        count = next((at for at, hash_ in enumerate(hashes) if hash_ not in self._copies), len(hashes))
        self._use(hashes[:count])
        return count

    def clear(self) -> None:
        """Forget every copy."""
        self._copies.clear()

    def __len__(self) -> int:
        return len(self._copies)

    def __iter__(self) -> Iterator[BlockHash]:
        """Least recently used first."""
        return iter(self._copies)

    def _use(self, prefix: Sequence[BlockHash]) -> None:
        for hash_ in reversed(prefix):
            if hash_ in self._copies:
                self._copies.move_to_end(hash_)
