"""The scene of most faults: one quiet engine whose prompt is asked for all the time, and loaded engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from inferencecache.cli.stack.plan import TENANT
from inferencecache.core.log.subjects import partition_of
from inferencecache.schemas.records import Batch, decode_batch
from tests.support.fleet.asking import MODEL, Asking, answering
from tests.support.fleet.checks import answers_equal_log, breaks, index_equals_engines, views_equal_log
from tests.support.fleet.load import Load, tokens, under
from tests.support.fleet.processes import ByProcess, Fleet
from tests.support.fleet.witness import Witness
from tests.support.waiting import eventually

ANCHOR_BLOCKS: Final = 6
SEED: Final = 7


class Scene:
    """Every fault happens under load; `settle` ends it and checks what must hold after any fault.

    `anchor` is the prompt that `asking` asks for; only the first engine holds it, which nothing loads.
    """

    def __init__(self, fleet: Fleet, witness: Witness, asking: Asking, anchor: list[int]) -> None:
        self.fleet = fleet
        self.witness = witness
        self.asking = asking
        self.anchor = anchor
        self._loads = 0

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[None]:
        """Load on all engines but the first inside the block, which begins once some of it is in the log."""
        self._loads += 1
        self.load = Load(SEED + self._loads, self.fleet.engines[1:], self.fleet.http, resets=0.03)
        async with under(self.load):
            await self.under_load()
            yield

    @property
    def partition(self) -> int:
        """The partition of the engines' records."""
        return partition_of(TENANT, MODEL, self.fleet.engines[0].replica, self.witness.layout)

    def owner(self, partition: int) -> str:
        """Name of the indexer that claimed a partition last."""
        id_ = self.witness.partitions[partition].claims[-1].claim.owner
        return next(
            name for name in self.fleet.names if name.startswith("indexer") and id_ in self.fleet.said(name)
        )

    async def repairs(self) -> float:
        """How often routers had to begin a view anew, in their present lives."""
        routers = self.fleet.running("router")
        return sum(
            [await self.fleet.metric(name, "inferencecache_router_view_repairs_total") for name in routers]
        )

    async def dropped(self, reason: str) -> float:
        """What indexers have dropped for this reason in partitions that they own now."""
        indexers = self.fleet.running("indexer")
        name = "inferencecache_indexer_dropped_total"
        return sum([await self.fleet.metric(each, name, reason=reason) for each in indexers])

    def batches(self, replica: str) -> list[Batch]:
        """What a replica's sidecar has put into the log."""
        return [
            decode_batch(raw.payload).batch
            for copy in self.witness.partitions
            for raw in copy.batches_of(replica)
        ]

    async def under_load(self) -> None:
        """Return once a little more load has reached the log, and was answered."""
        copy = self.witness.partitions[self.partition]

        def so_far() -> tuple[int, int, int]:
            return len(copy.messages), self.load.answered, len(self.asking.answers)

        before = so_far()

        def is_more() -> bool:
            return all(
                now >= then + more for now, then, more in zip(so_far(), before, (20, 5, 10), strict=True)
            )

        with suppress(AssertionError):
            await eventually(is_more, within_s=120)
        assert is_more(), f"messages, answers of engines and of routers were {before}, are {so_far()}"

    async def hold_anchor(self, engine: int = 0) -> None:
        """Let an engine compute the anchor."""
        await self.compute(self.anchor, engine)

    async def compute(self, prompt: Sequence[int], engine: int = 0) -> None:
        """Let an engine compute a prompt; of one that it holds it has nothing to tell."""
        body = {"prompt": list(prompt), "max_tokens": 1}
        url = f"{self.fleet.engines[engine].url}/v1/completions"
        async with self.fleet.http.post(url, json=body) as answer:
            assert answer.status == 200

    async def anchor_found(self, *, within_s: float = 30.0) -> None:
        """Return once every running router's latest answer finds the anchor."""
        running = self.fleet.running("router")

        def is_found() -> bool:
            latest = [self.asking.last(router) for router in running]
            return all(answer is not None and self.asking.found(answer) for answer in latest)

        await eventually(is_found, within_s=within_s, what="the anchor")

    async def settle(self, *, same_storage: bool = True) -> None:
        """End the load; then the index must become what engines hold, and views the fold of the log.

        On the `same_storage` all through, every view that a router ever had is compared, and no delta may
        leave a hole.
        """
        await self.load.end()
        await self.fleet.all_ready()
        await index_equals_engines(self.fleet, self.witness)
        await views_equal_log(self.fleet, self.witness, ever=same_storage)
        await self.anchor_found()
        prompts: Sequence[Sequence[int]] = [self.anchor, *self.load.recent[-5:]]
        assert await answers_equal_log(self.fleet, self.witness, prompts) >= len(self.fleet.routers)
        if same_storage:
            assert not [each for copy in self.witness.partitions for each in breaks(copy)]


@asynccontextmanager
async def scene(
    folder: Path, *, loaded: bool = True, flags: ByProcess | None = None, **arguments: Any
) -> AsyncIterator[Scene]:
    """A fleet that runs, knows the anchor, and is under load.

    Its routers name whoever holds a prompt, and not somebody else who has less to do.
    """
    flags = {"router": ("--balanced-ranking=false",), **(flags or {})}
    random = Random(SEED)
    anchor = [*tokens(random, ANCHOR_BLOCKS), 1]
    async with Fleet(folder, flags=flags, **arguments) as fleet, Witness(fleet.nats) as witness:
        asking = Asking(fleet.routers, anchor, fleet.engines[0].replica)
        it = Scene(fleet, witness, asking, anchor)
        await it.hold_anchor()
        async with answering(asking):
            await it.anchor_found()
            asking.forget()
            if not loaded:
                yield it
                return
            async with it.loaded():
                yield it
