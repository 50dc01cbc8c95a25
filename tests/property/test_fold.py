"""Whatever the log says and wherever it is cut, the product's state and answers are the model's."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.random_log import Mix
from tests.oracle.tight import tight
from tests.oracle.trial import random_steps, run

MIXES = {
    "everything": Mix(),
    "sidecars": Mix(grpc=False, evictions=False, departures=False),
    "honest clocks": Mix(wild_clocks=False),
    "one epoch": Mix(epochs=False, wild_clocks=False),
}


@pytest.mark.rule("IDX-04", "IDX-16", "IDX-17", "IDX-205")
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES.keys())
@settings(max_examples=25, deadline=None)
@given(random=st.randoms(use_true_random=False), steps=st.integers(1, 80))
def test_fold_snapshots_deltas_and_lookups_agree_with_the_model(mix: Mix, random: Random, steps: int) -> None:
    run(islice(random_steps(random, mix), steps))


@pytest.mark.rule("IDX-148", "IDX-152", "IDX-158", "IDX-202")
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES.keys())
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_tight", [False, True])
def test_longer_logs_agree_with_the_model(mix: Mix, seed: int, is_tight: bool) -> None:
    with tight(is_tight):
        run(islice(random_steps(Random(seed), mix), 400))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_tight", [False, True])
def test_logs_of_thousands_of_keys_agree_with_the_model(seed: int, is_tight: bool) -> None:
    with tight(is_tight):
        run(islice(random_steps(Random(seed), Mix(epochs=False, wide=True)), 150))
