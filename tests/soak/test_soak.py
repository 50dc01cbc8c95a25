"""Whatever dies, in whatever order: in the end the index is what the engines really hold.

INFERENCECACHE_SOAK_SECONDS sets how long processes are killed, INFERENCECACHE_SOAK_SEED repeats a run's
load and kills (but not how they meet in time).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from random import SystemRandom

import pytest

from tests.support.fleet.campaign import unleash
from tests.support.fleet.chaos import KILLS

DURATION_S = float(os.environ.get("INFERENCECACHE_SOAK_SECONDS", "300"))
OTHERWISE_S = 600.0
"""For starting, settling and checking."""

logger = logging.getLogger(__name__)


@pytest.mark.long
@pytest.mark.timeout(DURATION_S + OTHERWISE_S)
async def test_after_random_kills_the_index_is_the_union_of_the_engines_caches(tmp_path: Path) -> None:
    seed = int(os.environ.get("INFERENCECACHE_SOAK_SEED") or SystemRandom().getrandbits(32))
    outcome = await unleash(
        tmp_path / "fleet",
        seed=seed,
        seconds=DURATION_S,
        mix=KILLS,
        engines=10,
        indexers=1,
        clients=24,
        say=logger.info,
    )
    logger.info("seed %s: %s", seed, outcome)
    assert outcome.faults.keys() == KILLS.keys()
    assert outcome.answered > 5 * DURATION_S
    assert outcome.holds > 100
