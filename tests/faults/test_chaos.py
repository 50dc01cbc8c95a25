"""All faults of the table mixed at random, for minutes: in the end everything is right.

`make chaos MINUTES=n SEED=s` does the same for longer.
"""

from __future__ import annotations

import logging
from pathlib import Path
from random import SystemRandom

import pytest

from tests.support.fleet.campaign import unleash
from tests.support.fleet.chaos import EVERYTHING

DURATION_S = 180.0
OTHERWISE_S = 600.0
"""For starting, settling and checking."""

logger = logging.getLogger(__name__)


@pytest.mark.faketime
@pytest.mark.timeout(DURATION_S + OTHERWISE_S)
async def test_after_three_minutes_of_everything_the_index_and_all_views_are_right(tmp_path: Path) -> None:
    seed = SystemRandom().getrandbits(32)
    outcome = await unleash(
        tmp_path / "fleet", seed=seed, seconds=DURATION_S, mix=EVERYTHING, engines=4, say=logger.info
    )
    logger.info("seed %s: %s", seed, outcome)
    assert outcome.faults.keys() == EVERYTHING.keys()
    assert outcome.answered > DURATION_S
