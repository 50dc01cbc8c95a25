"""Whatever dies, in whatever order: in the end the index is what the engines really hold.

INFERENCECACHE_SOAK_SECONDS sets how long processes are killed, INFERENCECACHE_SOAK_SEED repeats a run's
load and kills (but not how they meet in time).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from random import SystemRandom

import pytest

from inferencecache.cli.load.agreement import Agreement, watch_agreement
from inferencecache.cli.running import in_background
from inferencecache.core.service import AssetSettings, NatsSettings
from inferencecache.router.following import IndexFollowing
from tests.soak.fleet import Fleet
from tests.soak.holds import differences, doubted, true_holds, viewed_holds
from tests.soak.kills import Kills
from tests.soak.load import Load
from tests.support.waiting import eventually

DURATION_S = float(os.environ.get("INFERENCECACHE_SOAK_SECONDS", "300"))
SETTLING_LIMIT_S = 90.0
"""Covers the longest back-off of anything that reconnects."""
UNCHANGED_S = 3.0
START_LIMIT_S = 240.0

logger = logging.getLogger(__name__)


@pytest.mark.long
@pytest.mark.timeout(DURATION_S + SETTLING_LIMIT_S + START_LIMIT_S)
async def test_after_random_kills_the_index_is_the_union_of_the_engines_caches(tmp_path: Path) -> None:
    seed = int(os.environ.get("INFERENCECACHE_SOAK_SEED") or SystemRandom().getrandbits(32))
    agreement = Agreement()
    async with Fleet(tmp_path / "fleet") as fleet:
        following = IndexFollowing(NatsSettings(fleet.nats_url, insecure=True), AssetSettings(), 30.0)
        async with (
            in_background(following.run("127.0.0.1:0")),
            in_background(watch_agreement(fleet.nats_url, agreement)),
        ):
            await eventually(lambda: following.complete, within_s=60)
            load = Load(seed, fleet.engines, fleet.http)
            kills = Kills(seed, fleet)
            loading = asyncio.create_task(load.run())
            await kills.run(DURATION_S)
            load.stop.set()
            await loading
            await fleet.all_ready()
            truth = await true_holds(fleet.engines, fleet.http)

            stopped_at = time.monotonic()
            different: list[str] = []
            equal_since: float | None = None

            def is_equal_for_a_while() -> bool:
                nonlocal different, equal_since
                different = differences(truth, viewed_holds(following, fleet.engines)) + doubted(following)
                if different:
                    equal_since = None
                elif equal_since is None:
                    equal_since = time.monotonic()
                return equal_since is not None and time.monotonic() > equal_since + UNCHANGED_S

            with contextlib.suppress(AssertionError):
                await eventually(is_equal_for_a_while, within_s=SETTLING_LIMIT_S)
            if different or equal_since is None:
                report = (f"seed {seed}, logs in {tmp_path}", *kills.log, *different)
                pytest.fail("\n".join(report), pytrace=False)
            settled_s = equal_since - stopped_at
            assert truth == await true_holds(fleet.engines, fleet.http), "the engines were not idle"
    logger.info(
        "seed %s: %s answers, %s failures, %s resets, kills %s, %s holds, %s comparisons, settled in %.1f s",
        *(seed, load.answered, load.failed, load.resets, kills.counts),
        *(sum(map(len, truth.values())), agreement.compared, settled_s),
    )
    assert all(kills.counts.values())
    assert load.answered > 5 * DURATION_S
    assert sum(map(len, truth.values())) > 100
    assert agreement.compared > 0
    assert agreement.different == 0
