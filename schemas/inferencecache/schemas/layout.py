"""How the log is cut into partitions: the value of `IC_LAYOUT` under `layout`, its only place.

A layout is never changed in place. A new generation is put in force beside the older ones, whose
streams stay, and go on being folded, until they are pruned.
"""

from __future__ import annotations

from typing import Final

import msgspec

from inferencecache.schemas.ids import ModelId, TenantId

SCHEMA_VERSION: Final = 1
"""Version of the records, deltas and snapshots; a layout that names a higher one is refused."""


class Lanes(msgspec.Struct, frozen=True):
    """A (tenant, model) with more engines than one indexer can fold is spread over `lanes` partitions."""

    tenant: TenantId
    model: ModelId
    lanes: int


class Layout(msgspec.Struct, frozen=True):
    """One generation of the layout. `partitions` >= 1; a (tenant, model) that is not listed has one lane."""

    generation: int = 1
    partitions: int = 2
    lanes: tuple[Lanes, ...] = ()
    schema: int = SCHEMA_VERSION

    def lanes_of(self, tenant: str, model: str) -> int:
        """Number of lanes of (tenant, model), at least 1."""
        for entry in self.lanes:
            if entry.tenant == tenant and entry.model == model:
                return max(1, entry.lanes)
        return 1

    @property
    def generations(self) -> tuple[Layout, ...]:
        """All generations that have streams; the last is the one in force."""
        return (self,)


class CurrentLayout(Layout, frozen=True):
    """The value of `IC_LAYOUT`: the generation in force, and the `older` ones that still have streams, the
    oldest first.
    """

    older: tuple[Layout, ...] = ()

    @property
    def in_force(self) -> Layout:
        """The generation in force by itself."""
        return Layout(self.generation, self.partitions, self.lanes, self.schema)

    @property
    def generations(self) -> tuple[Layout, ...]:
        return (*self.older, self.in_force)
