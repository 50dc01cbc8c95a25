"""Where an engine says a block is: media, the tier each stands for, and which ones are nobody's own.

Media that every replica can load from are never attributed to the replica that announced them, since
a hint that sends a request there would gain nothing [SUB-046, SUB-047].
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Self

import msgspec

from inferencecache.schemas.records import TIER_T1, TIER_T2

GPU: Final = "GPU"
_OFFLOAD: Final = frozenset({"CPU", "CPU_PINNED", "STORAGE", "DISK"})
_SHARED: Final = frozenset({"EXTERNAL"})

CpuMedium = Literal["local", "shared"]
Place = Literal["T1", "T2", "shared", "unknown"]
TIER_OF_PLACE: Final[dict[Place, int]] = {"T1": TIER_T1, "T2": TIER_T2}
"""Tiers of the places whose blocks are reported; the other places are ignored."""


class Holder(NamedTuple):
    """In which medium of which cache group a source holds a block, and on whose behalf."""

    medium: str
    group: int | None
    ownership: str | None
    tier: int


class Holders(msgspec.Struct, frozen=True, gc=False):
    """All holders of a block, and the tiers they are on. Blocks share them."""

    each: tuple[Holder, ...] = ()
    on_t1: bool = False
    on_t2: bool = False

    @property
    def tier(self) -> int:
        """The warmest, 0 for nobody."""
        return TIER_T1 if self.on_t1 else TIER_T2 if self.on_t2 else 0

    @classmethod
    def of(cls, each: tuple[Holder, ...]) -> Self:
        """These holders."""
        tiers = {holder.tier for holder in each}
        return cls(each, TIER_T1 in tiers, TIER_T2 in tiers)


NOBODY: Final = Holders()


def medium_name(medium: str | None) -> str:
    """Media are compared without case; none is GPU memory [SUB-046]."""
    return GPU if medium is None else medium.upper()


def place_of(medium: str | None, locality: str | None, cpu_medium: CpuMedium = "local") -> Place:
    """What a medium stands for. With `cpu_medium` "shared" a medium `CPU` is a pool of all pods."""
    name = medium_name(medium)
    if name == GPU:
        return "T1"
    if name in _SHARED or (name == "CPU" and cpu_medium == "shared"):
        return "shared"
    if name in _OFFLOAD:
        return "T2" if locality in (None, "LOCAL") else "shared"
    return "unknown"
