"""All faults of the table mixed at random, for minutes: in the end everything is right.

The choice of faults is the same in each run, which judges the change before it; `make chaos MINUTES=n` looks
further, with another seed each time.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.fleet.campaign import unleash
from tests.support.fleet.chaos import EVERYTHING

DURATION_S = 180.0
SEED = 1
OTHERWISE_S = 600.0
"""For starting, settling and checking."""

logger = logging.getLogger(__name__)


@pytest.mark.faketime
@pytest.mark.timeout(DURATION_S + OTHERWISE_S)
async def test_after_three_minutes_of_everything_the_index_and_all_views_are_right(tmp_path: Path) -> None:
    outcome = await unleash(
        tmp_path / "fleet", seed=SEED, seconds=DURATION_S, mix=EVERYTHING, engines=4, say=logger.info
    )
    logger.info("seed %s: %s", SEED, outcome)
    assert outcome.faults.keys() == EVERYTHING.keys()
    assert outcome.answered > DURATION_S
