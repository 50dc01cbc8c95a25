"""The simulation finds out a product that lacks what the protocol rests on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.simulation import mutations
from tests.simulation.campaign import Mutate, try_seeds

_SEEDS = 300
_OWNERS = ("pause indexer", "kill indexer", "stall", "new indexer")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutate", "faults"),
    [
        (mutations.no_compare_and_set_on_deltas, _OWNERS),
        (mutations.purge_past_the_previous_snapshot, ("new router",)),
        (mutations.no_sequence_check, ("storage",)),
        (mutations.owner_records_without_the_claim, _OWNERS),
        (mutations.begin_without_expectation, ("late begin",)),
        (mutations.no_proof_of_the_position, ("storage",)),
        (mutations.room_given_before_it_is_there, _OWNERS),
    ],
)
def test_a_product_without_it_is_found_out(mutate: Mutate, faults: Sequence[str]) -> None:
    trying = try_seeds(range(_SEEDS), workers=os.cpu_count() or 1, faults=faults, mutate=mutate)
    with closing(trying):
        found = next((tried for tried in trying if tried.verdict.violation), None)
    assert found is not None
    [whole] = try_seeds([found.seed], workers=1, faults=faults)
    assert not whole.verdict.violation, "the product that has it is found out too"
