"""A router's replica of one generation of the layout: every partition of it, followed side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from inferencecache.core.index.reading import IndexView
from inferencecache.core.index.view import View
from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partitions_of
from inferencecache.core.protocol.generations import Standing, standing_of
from inferencecache.router.replica import PartitionReplica
from inferencecache.router.restriction import Restriction
from inferencecache.schemas.layout import Layout

_NEVER_FILLED: Final = View(1)
"""Stands for a partition that is not followed."""


class FollowedGeneration:
    """Follows the partitions of `layout` that the restriction needs, until cancelled."""

    def __init__(
        self,
        log: Log,
        layout: Layout,
        restriction: Restriction,
        *,
        on_change: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self.layout = layout
        self._restriction = restriction
        self._slots: list[PartitionReplica | None] = [None] * layout.partitions
        for number in _needed(layout, restriction):
            self._slots[number] = PartitionReplica(
                log, layout.generation, number, on_change=on_change, on_missing=on_missing
            )
        self.replicas = [slot for slot in self._slots if slot is not None]

    @property
    def loaded(self) -> bool:
        """Has every partition reached the delta that was last when it was first opened?"""
        return all(replica.loaded for replica in self.replicas)

    @property
    def views(self) -> Sequence[IndexView]:
        """One view a partition, at its number; an empty one for those that are not followed."""
        return [slot.view if slot is not None else _NEVER_FILLED for slot in self._slots]

    def replica(self, partition: int) -> PartitionReplica | None:
        """None for a partition that is not followed, or that this generation has not."""
        return self._slots[partition] if partition < len(self._slots) else None

    def standing(self) -> Standing:
        """How far the views are."""
        return standing_of(
            [replica.view for replica in self.replicas],
            is_loaded=self.loaded,
            concerns=lambda name: self._restriction.serves(name.tenant, name.model),
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for replica in self.replicas:
                group.create_task(replica.run())


def _needed(layout: Layout, restriction: Restriction) -> list[int]:
    """The partitions that may hold what is served: known only when both tenants and models are named."""
    if not (restriction.tenants and restriction.models):
        return list(range(layout.partitions))
    pairs = [(tenant, model) for tenant in restriction.tenants for model in restriction.models]
    return sorted({partition for pair in pairs for partition in partitions_of(*pair, layout)})
