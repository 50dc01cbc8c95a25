"""What a replica is worth to a lookup."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.ranking import (
    HOT_MAXIMUM_AGE_US,
    Conditions,
    distinguishing_power,
    freshness,
    pressure_factor,
    rank_hits,
    rank_hot,
    rank_runs,
)
from inferencecache.core.index.reading import Hit, Run
from inferencecache.core.index.single import single, wrapped
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import ReplicaId

R1, R2, R3 = ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3")
NOW_US = 10**15
TTL_US = 1800 * 10**6
INT32 = st.integers(-(2**31), 2**31 - 1)


def conditions(
    members: int = 1, ttft_ms: int = 0, stats: dict[ReplicaId, StatsRow] | None = None
) -> Conditions:
    return Conditions(NOW_US, TTL_US, ttft_ms, members, stats or {})


def pressed(pressure: float, age_us: int = 0) -> StatsRow:
    return StatsRow(pressure=pressure, reported_us=NOW_US - age_us)


@pytest.mark.rule("IDX-52", "IDX-53")
@pytest.mark.parametrize(
    ("age_us", "expected"),
    [(-1, 1.0), (0, 1.0), (900 * 10**6, 0.5), (TTL_US - 1, 5.55e-10), (TTL_US, 0.0), (TTL_US + 1, 0.0)],
)
def test_freshness_falls_in_a_line_to_0_at_the_ttl(age_us: int, expected: float) -> None:
    assert freshness(age_us, TTL_US) == pytest.approx(expected, rel=1e-2)


@pytest.mark.rule("IDX-86", "IDX-89", "IDX-91", "IDX-92")
@pytest.mark.parametrize(
    ("matching", "members", "power"),
    [(1, 1, 1), (1, 0, 1), (-1, 5, 1), (1, 2, 0.5), (2, 2, 0), (3, 2, 0), (1, 3, 2 / 3), (2, 3, 1 / 3)],
)
def test_a_match_tells_little_that_many_have(matching: int, members: int, power: float) -> None:
    assert distinguishing_power(matching, members) == single(power)


@pytest.mark.rule("IDX-82")
@pytest.mark.parametrize(
    ("pressure", "factor"), [(0, 1), (0.25, 0.75), (1, 0), (1.5, 0), (-0.5, 1), (1e300, 0), (-1e300, 1)]
)
def test_the_pressure_factor_stays_between_0_and_1(pressure: float, factor: float) -> None:
    assert pressure_factor(pressed(pressure)) == factor


@pytest.mark.rule("IDX-81")
def test_pressure_counts_only_while_its_statistics_are_younger_than_the_ttl() -> None:
    hits = [Hit(R1, 100, NOW_US, 1)]
    for age_us, score in ((0, 50.0), (TTL_US - 1, 50.0), (TTL_US, 100.0), (-(10**9), 50.0)):
        (ranked,) = rank_hits(hits, conditions(stats={R1: pressed(0.5, age_us)}))
        assert ranked.score == score


@pytest.mark.rule("IDX-83", "WIRE-C02")
@pytest.mark.parametrize(
    ("ttft_ms", "score"), [(50, 256), (199, 256), (200, 128), (0, 128), (-5, 128), (1, 256)]
)
def test_a_tight_target_weighs_freshness_more(ttft_ms: int, score: float) -> None:
    (ranked,) = rank_hits([Hit(R1, 128, NOW_US, 1)], conditions(ttft_ms=ttft_ms))
    assert ranked.score == score


@pytest.mark.rule("IDX-65", "IDX-87")
def test_a_holder_without_tokens_is_a_candidate_and_counts_as_a_holder() -> None:
    hits = [Hit(R1, 90, NOW_US, 1), Hit(R2, 0, NOW_US, 1), Hit(R3, -9, NOW_US, 1)]
    ranked = rank_hits(hits, conditions(members=6))
    assert [(score.replica, score.score) for score in ranked] == [(R1, 45.0), (R2, 0.0), (R3, -4.5)]


@pytest.mark.rule("IDX-70", "IDX-71", "IDX-72", "IDX-88")
def test_a_run_is_worth_the_requests_counts_and_its_oldest_block() -> None:
    runs = [Run(R1, 2, NOW_US - 900 * 10**6, 2), Run(R2, 1, NOW_US, 1), Run(R3, 3, NOW_US, 1)]
    ranked = rank_runs(runs, [64, 0, -64, 100], conditions(members=4))
    assert [score.replica for score in ranked] == [R2, R1], "a run that sums to nothing is no candidate"
    assert [score.matched_tokens for score in ranked] == [64, 64]
    assert [score.score for score in ranked] == [32.0, 16.0]
    assert [score.hit_prob for score in ranked] == [1.0, 0.5]
    assert [score.tier for score in ranked] == [1, 2]
    assert [score.blocks for score in ranked] == [1, 2]


@pytest.mark.rule("IDX-88")
def test_each_run_is_told_apart_by_how_many_reach_its_depth() -> None:
    runs = [Run(R1, 4, NOW_US, 1), Run(R2, 2, NOW_US, 1), Run(R3, 1, NOW_US, 1)]
    ranked = rank_runs(runs, [64] * 4, conditions(members=3))
    assert [score.score for score in ranked] == pytest.approx([170.667, 42.667, 0.0], abs=0.001)


@pytest.mark.rule("WIRE-028", "WIRE-C37")
def test_a_run_whose_sum_wraps_below_zero_is_no_candidate() -> None:
    counts = [2**31 - 1, 1]
    assert rank_runs([Run(R1, 2, NOW_US, 1)], counts, conditions()) == ()
    (ranked,) = rank_runs([Run(R1, 1, NOW_US, 1)], counts, conditions())
    assert ranked.matched_tokens == 2**31 - 1


@pytest.mark.rule("IDX-76", "IDX-77", "WIRE-077")
@pytest.mark.parametrize(("tier", "reported"), [(1, 1), (2, 2), (3, 3), (0, 0), (4, 0), (2**31 - 1, 0)])
def test_a_tier_that_has_no_name_is_reported_as_unspecified(tier: int, reported: int) -> None:
    (ranked,) = rank_hits([Hit(R1, 100, NOW_US, tier)], conditions())
    assert (ranked.tier, ranked.score) == (reported, 100.0)


@pytest.mark.rule("IDX-96", "IDX-97", "IDX-98", "IDX-W47")
def test_a_hot_replica_is_worth_its_hit_rate_recency_and_idleness() -> None:
    row = StatsRow(hit_rate=0.8, pressure=0.1, reported_us=NOW_US - 30 * 10**6)
    (plain,) = rank_hot([R1], conditions(stats={R1: row}))
    (tight,) = rank_hot([R1], conditions(stats={R1: row}, ttft_ms=100))
    assert plain.score == pytest.approx(0.648, abs=1e-4)
    assert tight.score == pytest.approx(1.2312, abs=1e-4)
    assert (plain.matched_tokens, plain.tier, plain.hit_prob) == (0, 0, single(0.8))


@pytest.mark.rule("IDX-96", "IDX-98", "IDX-W51")
@pytest.mark.parametrize(
    ("row", "qualifies"),
    [
        (StatsRow(hit_rate=0.1, reported_us=NOW_US), True),
        (StatsRow(hit_rate=0.0999, reported_us=NOW_US), False),
        (StatsRow(hit_rate=0.9, pressure=1.0, reported_us=NOW_US), True),
        (StatsRow(hit_rate=0.9, reported_us=NOW_US - HOT_MAXIMUM_AGE_US + 1), True),
        (StatsRow(hit_rate=0.9, reported_us=NOW_US - HOT_MAXIMUM_AGE_US), False),
        (StatsRow(hit_rate=0.9, reported_us=NOW_US + 10**9), True),
    ],
)
def test_only_recent_statistics_with_a_fair_hit_rate_make_a_replica_hot(
    row: StatsRow, qualifies: bool
) -> None:
    assert bool(rank_hot([R1], conditions(stats={R1: row}))) is qualifies
    assert rank_hot([R2], conditions(stats={R1: row})) == (), "statistics alone make no member"


@pytest.mark.rule("IDX-94")
def test_equal_scores_are_ordered_by_the_bytes_of_the_id() -> None:
    names = ["r-10", "r-2", "é", "z", "𝄞", "\uffff"]
    hits = [Hit(ReplicaId(name), 5, NOW_US, 1) for name in reversed(names)]
    ranked = rank_hits(hits, conditions(members=3))
    assert [score.replica for score in ranked] == sorted(names, key=str.encode)


def test_penalties_are_subtracted_before_ordering() -> None:
    hits = [Hit(R1, 100, NOW_US, 1), Hit(R2, 80, NOW_US, 1)]
    ranked = rank_hits(hits, conditions(members=4)._replace(penalties={R1: 20.0}))
    assert [(score.replica, score.score) for score in ranked] == [(R2, 40.0), (R1, 30.0)]


@pytest.mark.rule("IDX-07")
@given(
    tokens=INT32,
    age_us=st.integers(-(10**6), TTL_US - 1),
    pressure=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ttft_ms=st.integers(-10, 300),
    members=st.integers(1, 9),
)
def test_a_score_is_the_product_of_its_factors_in_single_precision(
    tokens: int, age_us: int, pressure: float, ttft_ms: int, members: int
) -> None:
    stats = {R1: pressed(pressure)}
    (ranked,) = rank_hits([Hit(R1, tokens, NOW_US - age_us, 1)], conditions(members, ttft_ms, stats))

    def f32(value: float) -> float:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])

    fresh = 1.0 if age_us <= 0 else f32(1 - age_us / TTL_US)
    expected = f32(f32(tokens) * fresh)
    expected = f32(expected * min(1.0, max(0.0, f32(1 - pressure))))
    expected = f32(expected * (f32(1 + fresh) if 0 < ttft_ms < 200 else 1.0))
    expected = f32(expected * (f32(1 - 1 / members) if members > 1 else 1.0))
    assert ranked.score == expected
    assert ranked.hit_prob == fresh


@given(value=st.integers(-(2**40), 2**40))
def test_wrapped_sums_are_what_a_32_bit_register_holds(value: int) -> None:
    assert wrapped(value) == struct.unpack("<i", struct.pack("<q", value)[:4])[0]


def test_a_value_beyond_single_precision_becomes_infinite() -> None:
    assert single(1e300) == math.inf
    assert single(-1e300) == -math.inf
