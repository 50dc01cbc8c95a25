"""How the log is cut into partitions: the value of `IC_LAYOUT` under `layout`, its only place."""

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
