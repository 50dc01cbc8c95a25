"""The engine's sequence has a gap, and its replay socket is absent or truncated: what replay covers is
recovered, the rest is uncertain and ages; the index is right again once blocks are stored again.
"""

from __future__ import annotations

import asyncio
import time
from random import Random

from tests.faults.conftest import Staged
from tests.oracle.model import NaiveFold
from tests.support.engine import BLOCK, Engine, stored
from tests.support.fleet.checks import views_equal_log
from tests.support.fleet.holds import folded_holds, true_holds
from tests.support.fleet.load import Load, under
from tests.support.fleet.processes import BLOCK_SIZE
from tests.support.fleet.requests import set_ttl
from tests.support.fleet.scene import SEED, Scene
from tests.support.sidecar import keys
from tests.support.waiting import eventually, set_within

TTL_S = 5
SLACK_S = 3
METRIC = "inferencecache_subscriber_"


class Cache:
    """What an engine holds: chains of two blocks by a number, as the engine announces them."""

    def __init__(self, engine: Engine, replica: str) -> None:
        self.engine = engine
        self.replica = replica
        self.chains: set[int] = set()

    async def store(self, chain: int, *, lost: bool = False) -> None:
        self.chains.add(chain)
        message = stored([10 * chain, 10 * chain + 1], tokens_of(chain))
        await self.engine.publish(message, lost=lost)

    async def remove(self, chain: int, *, lost: bool = False) -> None:
        self.chains.remove(chain)
        blocks = [10 * chain, 10 * chain + 1]
        await self.engine.publish(
            {"type": "BlockRemoved", "block_hashes": blocks, "medium": "GPU"}, lost=lost
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the sidecar beside it."""
        return (
            f"--engine-endpoint={self.engine.live_endpoint}",
            f"--replay-endpoint={self.engine.replay_endpoint}",
            f"--engine-metrics-url={self.engine.metrics_url}",
        )


async def test_what_replay_does_not_cover_is_uncertain_and_ages(staged: Staged) -> None:
    async with Engine(replays=False) as mute, Engine(kept=2) as forgetful:
        caches = Cache(mute, "engine-2"), Cache(forgetful, "engine-3")
        flags = {
            "sidecar": ("--alive-interval=1s",),
            "indexer": ("--sweep-interval=1s",),
            "sidecar-2": caches[0].flags,
            "sidecar-3": caches[1].flags,
            "engine-4": ("--lose-live=5",),
        }
        async with staged(engines=4, without=("engine-2", "engine-3"), flags=flags, loaded=False) as scene:
            fleet, witness = scene.fleet, scene.witness
            load = Load(SEED, fleet.engines[3:], fleet.http)
            async with under(load):
                await eventually(lambda: load.answered > 20, within_s=60)
                await set_ttl(witness, TTL_S)
                for cache in caches:
                    for chain in (1, 2):
                        await cache.store(chain)
                await eventually(lambda: all(held(scene.witness.folds, c.replica) == {1, 2} for c in caches))
                for cache in caches:
                    await cache.remove(1, lost=True)
                    await cache.store(3, lost=True)
                    await cache.store(4, lost=True)
                    await cache.store(5)
                lost_at = time.monotonic()
                certain = {"engine-2": {5}, "engine-3": {4, 5}}

                def is_doubted() -> bool:
                    folds = witness.folds
                    return all(
                        held(folds, c.replica, certain=True) == certain[c.replica]
                        and held(folds, c.replica) == certain[c.replica] | {1, 2}
                        for c in caches
                    )

                await eventually(is_doubted, within_s=TTL_S, what="doubt")
                for cache in caches:
                    assert certain[cache.replica] <= cache.chains
                await eventually(
                    lambda: all(held(witness.folds, c.replica) == certain[c.replica] for c in caches),
                    within_s=TTL_S + SLACK_S,
                    what="an end of what is uncertain",
                )
                assert time.monotonic() - lost_at > TTL_S - SLACK_S
                for cache in caches:
                    for chain in cache.chains:
                        await cache.store(chain)
                await eventually(lambda: all(held(witness.folds, c.replica) == c.chains for c in caches))
            await eventually(lambda: engine_is_equal(scene), within_s=60)
            await views_equal_log(fleet, witness)
            for sidecar, lost, replayed in (("sidecar-2", 3, 0), ("sidecar-3", 2, 2)):
                assert await fleet.metric(sidecar, METRIC + "missed_messages_total") == 3
                assert await fleet.metric(sidecar, METRIC + "unrecovered_messages_total") == lost
                assert await fleet.metric(sidecar, METRIC + "replayed_messages_total") == replayed
            assert await fleet.metric("sidecar-4", METRIC + "missed_messages_total") > 0
            assert await fleet.metric("sidecar-4", METRIC + "unrecovered_messages_total") == 0
            assert not scene.asking.amiss()


def tokens_of(chain: int) -> list[int]:
    """The tokens of a chain's two blocks."""
    return list(range(100 * chain, 100 * chain + 2 * BLOCK))


def held(folds: list[NaiveFold], replica: str, *, certain: bool = False) -> set[int]:
    """Chains that a replica holds by the log; each of them whole."""
    hashes = folded_holds(folds, certain=certain).get(replica, set())
    chains = {
        chain for chain in range(10) if {int.from_bytes(key) for key in keys(*tokens_of(chain))} <= hashes
    }
    assert len(hashes) == 2 * len(chains)
    return chains


async def engine_is_equal(scene: Scene) -> bool:
    """Is what the loaded engine holds what the log says of it? That its last message was lost, only another
    one tells, which may be lost too: each has something new to tell.
    """
    truth = await true_holds(scene.fleet.engines[3:], scene.fleet.http)
    if folded_holds(scene.witness.folds)["engine-4"] == truth["engine-4"]:
        return True
    await scene.compute(Random().choices(range(1, 30_000), k=2 * BLOCK_SIZE), engine=3)
    await set_within(asyncio.Event(), 0.5)
    return False
