"""What part of the fleet a router serves: all of it, or some tenants and models.

A restricted router follows the partitions that may hold what it serves, and each of them whole: a view
that left out what others hold could not be checked against the owner's digest. Which partitions these
are is known only when both tenants and models are named; otherwise all are followed. Lookups about
anything else are answered as by an index that holds nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from inferencecache.schemas.ids import ModelId, TenantId


class Restriction(msgspec.Struct, frozen=True):
    """The tenants and the models that are served; none named means all."""

    tenants: frozenset[TenantId] = frozenset()
    models: frozenset[ModelId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.tenants or self.models)

    def serves(self, tenant: TenantId, model: ModelId) -> bool:
        """Are lookups about them answered from the index?"""
        return (not self.tenants or tenant in self.tenants) and (not self.models or model in self.models)


EVERYTHING: Final = Restriction()
