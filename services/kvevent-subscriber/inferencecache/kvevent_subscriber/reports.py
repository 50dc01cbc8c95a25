"""What a batch of engine events comes to, in order: the mapping's output and the records' input."""

from __future__ import annotations

import msgspec

from inferencecache.schemas.ids import AdapterId


class Added(msgspec.Struct, gc=False):
    """The replica holds these keys. `token_counts` are tokens from position 0; `downgrade` marks keys that
    left a warmer tier [SUB-107].
    """

    adapter: AdapterId
    tier: int
    keys: list[bytes]
    token_counts: list[int]
    downgrade: bool = False


class Evicted(msgspec.Struct, gc=False):
    """The replica no longer holds these keys."""

    adapter: AdapterId
    keys: list[bytes]


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """The engine itself reset its cache [SUB-109]."""


class Restarted(msgspec.Struct, frozen=True, gc=False):
    """What was reported is void: another engine process, or a gap with `--on-gap=clear`."""


class Doubted(msgspec.Struct, frozen=True, gc=False):
    """`missed` messages of the engine are lost for good; what was reported before is uncertain."""

    missed: int


class AllKnown(msgspec.Struct, frozen=True, gc=False):
    """What was reported since the sidecar began is all that the engine holds."""


Report = Added | Evicted | Cleared | Restarted | Doubted | AllKnown


class Reports:
    """Collects reports; neighbours of one kind, adapter and tier grow together."""

    def __init__(self) -> None:
        self.items: list[Report] = []

    def add(
        self, adapter: AdapterId, tier: int, key: bytes, token_count: int, *, downgrade: bool = False
    ) -> None:
        """One key is held."""
        last = self.items[-1] if self.items else None
        if (
            type(last) is Added
            and last.tier == tier
            and last.adapter == adapter
            and last.downgrade == downgrade
        ):
            last.keys.append(key)
            last.token_counts.append(token_count)
        else:
            self.items.append(Added(adapter, tier, [key], [token_count], downgrade))

    def evict(self, adapter: AdapterId, key: bytes) -> None:
        """One key is held no longer."""
        last = self.items[-1] if self.items else None
        if type(last) is Evicted and last.adapter == adapter:
            last.keys.append(key)
        else:
            self.items.append(Evicted(adapter, [key]))

    def void(self, report: Cleared | Restarted) -> None:
        """Nothing reported so far counts any more; adds that nothing followed are left out [SUB-109]."""
        while self.items and type(self.items[-1]) is Added and not self.items[-1].downgrade:
            self.items.pop()
        self.items.append(report)
