"""Whatever dies, in whatever order: in the end the index is what the engines really hold.

INFERENCECACHE_SOAK_SECONDS sets how long processes are killed, INFERENCECACHE_SOAK_SEED chooses another load
and other kills. The seed stays the same otherwise, since a run judges the change before it; how load and
kills meet in time differs from run to run anyway.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.support.fleet.campaign import unleash
from tests.support.fleet.chaos import KILLS

DURATION_S = float(os.environ.get("INFERENCECACHE_SOAK_SECONDS", "300"))
SEED = int(os.environ.get("INFERENCECACHE_SOAK_SEED", "1"))
OTHERWISE_S = 600.0
"""For starting, settling and checking."""

logger = logging.getLogger(__name__)


@pytest.mark.long
@pytest.mark.timeout(DURATION_S + OTHERWISE_S)
async def test_after_random_kills_the_index_is_the_union_of_the_engines_caches(tmp_path: Path) -> None:
    outcome = await unleash(
        tmp_path / "fleet",
        seed=SEED,
        seconds=DURATION_S,
        mix=KILLS,
        engines=10,
        indexers=1,
        clients=24,
        say=logger.info,
    )
    logger.info("seed %s: %s", SEED, outcome)
    assert outcome.faults.keys() == KILLS.keys()
    assert outcome.answered > 5 * DURATION_S
    assert outcome.holds > 100
