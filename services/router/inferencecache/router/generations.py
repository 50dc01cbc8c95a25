"""The generations of the layout that a router follows: the one that answers lookups, and one being built.

The choice is the machine's (`core.protocol.generations`); this carries it out. The served generation is
replaced between two calls, each of which asks one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from inferencecache.core.log import Log
from inferencecache.core.protocol.generations import Action, Follow, Generations, Leave, Serve, Standing
from inferencecache.core.service import get_logger
from inferencecache.router.generation import FollowedGeneration
from inferencecache.router.replica import PartitionReplica
from inferencecache.router.restriction import Restriction
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.layout import CurrentLayout, Layout

POLL_S: Final = 0.1
MOST_NAMED: Final = 10
"""Replicas that a log line names."""

logger = get_logger("router")


class FollowedGenerations:
    """Follows generations while it runs. `on_change` and `on_missing` are those of a `PartitionReplica`."""

    def __init__(
        self,
        log: Log,
        restriction: Restriction,
        *,
        on_change: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self.choice = Generations()
        self.served: FollowedGeneration | None = None
        self.swaps: Counter[str] = Counter()
        """Changes of the layout that lookups have followed, by outcome: `complete` or `late`."""
        self._log = log
        self._restriction = restriction
        self._on_change = on_change
        self._on_missing = on_missing
        self._followed: dict[Layout, tuple[FollowedGeneration, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._changing = asyncio.Event()

    @property
    def replicas(self) -> Iterator[PartitionReplica]:
        """The partitions of all generations that are followed."""
        return (replica for generation, _ in self._followed.values() for replica in generation.replicas)

    async def run(self, layout: CurrentLayout, *, is_served: bool) -> None:
        """Follow until cancelled; arguments are those of the machine's `told`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._do(self.choice.told(layout, is_served=is_served))
            while True:
                while self.choice.coming is not None:
                    self._do(self.choice.poll(time.monotonic(), self._standing))
                    await asyncio.sleep(POLL_S)
                self._changing.clear()
                await self._changing.wait()

    def changed(self, layout: CurrentLayout) -> None:
        """There is another layout, whose streams exist."""
        self._do(self.choice.told(layout))
        self._changing.set()

    def _standing(self, layout: Layout) -> Standing:
        return self._followed[layout][0].standing()

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Follow(layout):
                    self._follow(layout)
                case Serve(layout, late):
                    self._serve(layout, sorted(name.replica for name in late))
                case Leave(layout):
                    self._followed.pop(layout)[1].cancel()

    def _follow(self, layout: Layout) -> None:
        if self._group is None:
            raise RuntimeError("generations are followed only while this runs")
        generation = FollowedGeneration(
            self._log, layout, self._restriction, on_change=self._on_change, on_missing=self._on_missing
        )
        self._followed[layout] = (generation, self._group.create_task(generation.run()))
        event = "following" if self.served is None else "layout_swap_begun"
        logger.info(event, generation=layout.generation, partitions=layout.partitions)

    def _serve(self, layout: Layout, late: list[ReplicaId]) -> None:
        is_swap = self.served is not None
        self.served = self._followed[layout][0]
        self._on_change()
        if not is_swap:
            return
        self.swaps["late" if late else "complete"] += 1
        if late:
            logger.warning(
                "layout_swap_timed_out",
                msg="replicas that were alive have not begun in the new generation; see their sidecars' logs",
                generation=layout.generation,
                count=len(late),
                replicas=late[:MOST_NAMED],
            )
        logger.info("layout_swapped", generation=layout.generation, partitions=layout.partitions)
