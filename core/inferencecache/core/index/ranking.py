"""How much a replica is worth to a lookup.

A prefix match is worth its matched tokens, less for old evidence, for a replica under pressure, and
for a match that many others could serve as well [section 7 of the index rules]. When nothing matched,
a replica that serves its tenant's prompts well is a softer hint [section 8]. Every factor and every
product is rounded to single precision [IDX-07].
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from inferencecache.core.index.reading import Hit, Run
from inferencecache.core.index.single import single, wrapped
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.records import TIER_T1, TIER_T3

TIGHT_TTFT_MS: Final = 200
HOT_MINIMUM_HIT_RATE: Final = single(0.1)
HOT_MAXIMUM_AGE_US: Final = 300_000_000
TIER_UNSPECIFIED: Final = 0
NO_PENALTIES: Final[Mapping[ReplicaId, float]] = {}


class Factors(NamedTuple):
    """What a score is made of: `value` is matched tokens or a hit rate, and `penalty` what is taken off."""

    value: float = 0.0
    freshness: float = 1.0
    pressure: float = 1.0
    slo_bias: float = 1.0
    power: float = 1.0
    penalty: float = 0.0

    @property
    def product(self) -> float:
        """The score without regard to load [IDX section 7]."""
        product = single(self.value)
        for factor in self[1:5]:
            if factor != 1.0:
                product = single(product * factor)
        return product

    @property
    def score(self) -> float:
        """The balanced score."""
        return single(self.product - self.penalty) if self.penalty else self.product


NOTHING: Final = Factors()


class Score(NamedTuple):
    """One replica of an answer. `blocks` is the length of its run, 0 for a match that is no run."""

    replica: ReplicaId
    score: float = 0.0
    matched_tokens: int = 0
    hit_prob: float = 0.0
    tier: int = TIER_UNSPECIFIED
    blocks: int = 0
    factors: Factors = NOTHING


class Conditions(NamedTuple):
    """What ranking takes into account beside the matches themselves.

    `members` counts the scope's serving set; `penalties`, in tokens, lower scores, and are empty when nothing
    beyond the index speaks against a replica.
    """

    now_us: int
    ttl_us: int
    ttft_ms: int
    members: int
    stats: Mapping[ReplicaId, StatsRow]
    penalties: Mapping[ReplicaId, float] = NO_PENALTIES


def freshness(age_us: int, ttl_us: int) -> float:
    """1 for new, 0 from `ttl_us` on, linear in between, in single precision [IDX-52, IDX-53]."""
    if age_us <= 0:
        return 1.0
    if age_us >= ttl_us:
        return 0.0
    return single(1 - age_us / ttl_us)


def distinguishing_power(matching: int, members: int) -> float:
    """How much a match tells replicas apart when `matching` of `members` have it [IDX-89]."""
    if members <= 1 or matching < 0:
        return 1.0
    if matching >= members:
        return 0.0
    return single(1 - matching / members)


def rank_hits(hits: Sequence[Hit], conditions: Conditions) -> tuple[Score, ...]:
    """Scores of an exact match, best first [IDX-63..65, IDX-87]."""
    power = distinguishing_power(len(hits), conditions.members)
    return _best_first(
        [
            _match(hit.replica, hit.token_count, hit.last_seen_us, hit.tier, 0, power, conditions)
            for hit in hits
        ]
    )


def rank_runs(runs: Sequence[Run], counts: Sequence[int], conditions: Conditions) -> tuple[Score, ...]:
    """Scores of a chain match, best first; the request's `counts` say what a block is worth [IDX-70..72]."""
    if not runs:
        return ()
    longest = max(run.blocks for run in runs)
    totals = list(accumulate(counts[:longest]))
    candidates = [(matched, run) for run in runs if (matched := wrapped(totals[run.blocks - 1])) > 0]
    depths = sorted(matched for matched, _ in candidates)
    scores = []
    for matched, run in candidates:
        as_deep = len(depths) - bisect_left(depths, matched)
        power = distinguishing_power(as_deep, conditions.members)
        scores.append(
            _match(run.replica, matched, run.oldest_seen_us, run.tier, run.blocks, power, conditions)
        )
    return _best_first(scores)


def rank_hot(
    members: Sequence[ReplicaId], conditions: Conditions, prompt_tokens: int = 0
) -> tuple[Score, ...]:
    """Members with recent statistics that show a good hit rate, best first [IDX-96..98].

    A hit rate is a share of the prompt, so a penalty counts as one too. Where it is all that a good hit rate
    promises or more, there is no such member: else everybody would be sent to the one that has the best.
    """
    scores = []
    for replica in members:
        row = conditions.stats.get(replica)
        if row is None:
            continue
        recency = freshness(conditions.now_us - row.reported_us, HOT_MAXIMUM_AGE_US)
        hit_rate = single(row.hit_rate)
        if recency == 0 or hit_rate < HOT_MINIMUM_HIT_RATE:
            continue
        bias = _slo_bias(recency, conditions.ttft_ms)
        penalty = conditions.penalties.get(replica, 0.0) / prompt_tokens if prompt_tokens > 0 else 0.0
        factors = Factors(hit_rate, recency, pressure_factor(row), bias, penalty=penalty)
        scores.append(Score(replica, factors.score, hit_prob=hit_rate, factors=factors))
    ranked = _best_first(scores)
    is_outweighed = bool(ranked) and ranked[0].factors.penalty > 0 and ranked[0].score <= 0
    return () if is_outweighed else ranked


def pressure_factor(row: StatsRow) -> float:
    """1 for an idle replica, 0 for a saturated one [IDX-82]."""
    return min(1.0, max(0.0, single(1 - single(row.pressure))))


def _match(
    replica: ReplicaId,
    matched: int,
    seen_us: int,
    tier: int,
    blocks: int,
    power: float,
    conditions: Conditions,
) -> Score:
    fresh = freshness(conditions.now_us - seen_us, conditions.ttl_us)
    row = conditions.stats.get(replica)
    usable = row is not None and conditions.now_us - row.reported_us < conditions.ttl_us
    pressure = pressure_factor(row) if row is not None and usable else 1.0
    bias = _slo_bias(fresh, conditions.ttft_ms)
    factors = Factors(matched, fresh, pressure, bias, power, conditions.penalties.get(replica, 0.0))
    reported_tier = tier if TIER_T1 <= tier <= TIER_T3 else TIER_UNSPECIFIED
    return Score(replica, factors.score, matched, fresh, reported_tier, blocks, factors)


def _slo_bias(fresh: float, ttft_ms: int) -> float:
    return single(1 + fresh) if 0 < ttft_ms < TIGHT_TTFT_MS else 1.0


def _best_first(scores: list[Score]) -> tuple[Score, ...]:
    return tuple(sorted(scores, key=_rank))


def _rank(score: Score) -> tuple[float, ReplicaId]:
    return -score.score, score.replica
