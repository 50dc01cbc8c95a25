"""From a lookup to its answer, step by step as the rules number them [IDX section 12]."""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import xxhash

from inferencecache.core.index.reading import Scope
from inferencecache.schemas.deltas import StatsRow
from inferencecache.schemas.ids import PROBE_TENANT, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.policy import ResolvedPolicy
from tests.oracle.keys import key_of
from tests.oracle.model import HoldKey
from tests.oracle.view import NaiveView

SECOND_US: Final = 1_000_000
HOT_MAX_AGE_US: Final = 300 * SECOND_US
DEFAULT_TTL_US: Final = 1800 * SECOND_US
MAX_TOKENS: Final = 2**20


class Question(msgspec.Struct, frozen=True):
    """A lookup as it arrives on the wire, but for prompt text."""

    tenant: str = "t"
    model: str = "m"
    scheme: str = "vllm"
    adapter: str = ""
    prefix_hash: bytes = b""
    prefix_token_count: int = 0
    block_hashes: tuple[bytes, ...] = ()
    block_token_counts: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    ttft_ms: int = 0

    @property
    def scope(self) -> Scope:
        return Scope(TenantId(self.tenant), ModelId(self.model), HashScheme(self.scheme))


class Hint(NamedTuple):
    replica: str
    score: float
    matched_tokens: int = 0
    hit_prob: float = 0.0
    tier: int = 0


class Answer(NamedTuple):
    reason: str
    hints: tuple[Hint, ...] = ()
    adapter: str = ""
    """The echo; empty for answers given before the index was asked."""


class Input(NamedTuple):
    """What the request resolves to: a chain, or an exact key."""

    hashes: tuple[bytes, ...]
    counts: tuple[int, ...]
    exact: bytes
    exact_tokens: int

    @property
    def tokens(self) -> int:
        return wrapped_sum(self.counts) if self.counts else self.exact_tokens


def naive_route(
    view: NaiveView,
    policy: ResolvedPolicy | None,
    question: Question,
    now_us: int,
    *,
    block_size: int = 16,
    is_gated: bool = True,
) -> Answer:
    """Answer a lookup; `is_gated` False gives the index-level outcome of step 6."""
    knobs = _Knobs(policy)
    if question.tenant == PROBE_TENANT and is_gated:
        return Answer("NO_HINT")
    has_chain = 0 < len(question.block_hashes) == len(question.block_token_counts)
    if knobs.require_chain and not has_chain:
        return Answer("POLICY_REQUIRES_CHAIN")
    resolved = _resolve(question, knobs.chain_matching, block_size)
    if resolved is None:
        return Answer("NO_HINT")
    minimum = knobs.minimum_prefix_tokens
    is_small = minimum > 0 and resolved.tokens < minimum
    if is_small and not knobs.affinity and is_gated:
        return Answer("NO_HINT")

    reason, hints = _index_level(view, question, resolved, knobs.ttl_us, now_us)
    if not is_gated:
        return Answer(reason, tuple(hints), question.adapter)
    if reason == "TENANT_HOT" and not knobs.tenant_hot:
        reason = "NO_MATCH"
    if is_small and reason in ("PREFIX_MATCH", "TENANT_HOT"):
        reason = "NO_MATCH"
    if reason == "PREFIX_MATCH":
        floor = knobs.minimum_matched_tokens
        hints = [hint for hint in hints if floor <= 0 or hint.matched_tokens >= floor]
        if not hints or (knobs.floor_score > 0 and hints[0].score < knobs.floor_score):
            reason = "NO_MATCH"
    if reason == "NO_MATCH":
        chosen = _affinity(view, question, resolved) if knobs.affinity else None
        if chosen is None:
            return Answer("NO_HINT", (), question.adapter)
        return Answer("AFFINITY_HINT", (Hint(chosen, 0.0),), question.adapter)
    return Answer(reason, tuple(hints), question.adapter)


def naive_credits(
    view: NaiveView,
    policy: ResolvedPolicy | None,
    question: Question,
    now_us: int,
    *,
    block_size: int = 16,
) -> Counter[HoldKey]:
    """Accesses of holds by a delivered answer, if the tenant evicts what is used least [IDX-144]."""
    accesses: Counter[HoldKey] = Counter()
    answer = naive_route(view, policy, question, now_us, block_size=block_size)
    if answer.reason != "PREFIX_MATCH":
        return accesses
    knobs = _Knobs(policy)
    resolved = _resolve(question, knobs.chain_matching, block_size)
    assert resolved is not None
    runs = view.leading_runs(question.scope, question.adapter, resolved.hashes, now_us, knobs.ttl_us)
    blocks = {run.replica: run.blocks for run in runs}
    for hint in answer.hints:
        if resolved.hashes:
            served = resolved.hashes[: blocks[ReplicaId(hint.replica)]]
        else:
            served = (resolved.exact,) if hint.matched_tokens > 0 else ()
        for hash_ in served:
            accesses[HoldKey(*question.scope, question.adapter, *key_of(hash_), hint.replica)] += 1
    return accesses


class _Knobs:
    """The values in force for a tenant [IDX section 11.2]."""

    def __init__(self, policy: ResolvedPolicy | None) -> None:
        self.ttl_us = DEFAULT_TTL_US
        self.minimum_prefix_tokens = 0
        self.minimum_matched_tokens = 64
        self.floor_score = f32(0.1)
        self.affinity = self.chain_matching = self.tenant_hot = True
        self.require_chain = False
        if policy is None:
            return
        if policy.eviction_ttl_ms > 0:
            self.ttl_us = policy.eviction_ttl_ms * 1000
        self.minimum_prefix_tokens = policy.minimum_prefix_tokens
        self.minimum_matched_tokens = policy.minimum_matched_tokens
        if policy.routing_floor_score is not None:
            self.floor_score = f32(policy.routing_floor_score)
        self.affinity = policy.affinity_routing is not False
        self.chain_matching = policy.enable_chain_matching is not False
        self.tenant_hot = policy.enable_tenant_hot is not False
        self.require_chain = policy.require_chain is True


def _resolve(question: Question, is_chain_matching: bool, block_size: int) -> Input | None:
    hashes, counts = question.block_hashes, question.block_token_counts
    if is_chain_matching:
        if hashes or counts or question.prefix_hash:
            if len(hashes) != len(counts):
                return None
            return Input(hashes, counts, question.prefix_hash, question.prefix_token_count)
        if question.token_ids:
            derived = fingerprint(question.token_ids, block_size)
            return Input(derived, (block_size,) * len(derived), b"", 0) if derived else None
    else:
        if question.prefix_hash:
            return Input((), (), question.prefix_hash, question.prefix_token_count)
        if question.token_ids:
            derived = fingerprint(question.token_ids, block_size)
            return Input((), (), derived[-1], len(derived) * block_size) if derived else None
        if hashes or counts:
            return None
    return Input((), (), b"", question.prefix_token_count)


def _index_level(
    view: NaiveView, question: Question, resolved: Input, ttl_us: int, now_us: int
) -> tuple[str, list[Hint]]:
    scope = question.scope
    if "" in scope:
        return "NO_MATCH", []
    if resolved.hashes:
        hints = _chain_hints(view, question, resolved, ttl_us, now_us)
        if hints:
            return "PREFIX_MATCH", hints
    else:
        hints = _exact_hints(view, question, resolved.exact, ttl_us, now_us)
        if hints:
            return "PREFIX_MATCH", hints
        hints = _hot_hints(view, question, now_us)
        if hints:
            return "TENANT_HOT", hints
    if view.is_empty():
        return "NO_MATCH", []
    if not view.has_tenant(question.tenant):
        return "UNKNOWN_TENANT", []
    if not view.has_model(question.tenant, question.model):
        return "UNKNOWN_MODEL", []
    if not view.has_scope(scope):
        return "UNKNOWN_HASH_SCHEME", []
    return "NO_MATCH", []


def _exact_hints(view: NaiveView, question: Question, hash_: bytes, ttl_us: int, now_us: int) -> list[Hint]:
    scope = question.scope
    hits = view.exact(scope, question.adapter, hash_, now_us, ttl_us)
    power = distinguishing_power(len(hits), len(view.members(scope)))
    hints = []
    for hit in hits:
        fresh = freshness(now_us - hit.last_seen_us, ttl_us)
        pressure = usable_pressure(view, question, hit.replica, ttl_us, now_us)
        score = product(hit.token_count, fresh, pressure, slo_bias(question, fresh), power)
        hints.append(Hint(hit.replica, score, hit.token_count, fresh, _reported_tier(hit.tier)))
    return ranked(hints)


def _chain_hints(
    view: NaiveView, question: Question, resolved: Input, ttl_us: int, now_us: int
) -> list[Hint]:
    scope = question.scope
    runs = view.leading_runs(scope, question.adapter, resolved.hashes, now_us, ttl_us)
    matched = {run.replica: wrapped_sum(resolved.counts[: run.blocks]) for run in runs}
    runs = [run for run in runs if matched[run.replica] > 0]
    hints = []
    for run in runs:
        tokens = matched[run.replica]
        as_deep = sum(matched[other.replica] >= tokens for other in runs)
        power = distinguishing_power(as_deep, len(view.members(scope)))
        fresh = freshness(now_us - run.oldest_seen_us, ttl_us)
        pressure = usable_pressure(view, question, run.replica, ttl_us, now_us)
        score = product(tokens, fresh, pressure, slo_bias(question, fresh), power)
        hints.append(Hint(run.replica, score, tokens, fresh, _reported_tier(run.tier)))
    return ranked(hints)


def _hot_hints(view: NaiveView, question: Question, now_us: int) -> list[Hint]:
    hints = []
    members = view.members(question.scope)
    for replica, row in view.stats(question.tenant, question.model).items():
        age_us = now_us - row.reported_us
        if replica not in members or age_us >= HOT_MAX_AGE_US or f32(row.hit_rate) < f32(0.1):
            continue
        recency = freshness(age_us, HOT_MAX_AGE_US)
        score = product(row.hit_rate, recency, pressure_factor(row), slo_bias(question, recency))
        hints.append(Hint(replica, score, 0, f32(row.hit_rate)))
    return ranked(hints)


def _affinity(view: NaiveView, question: Question, resolved: Input) -> str | None:
    scope = question.scope
    if "" in scope or len(question.block_hashes) != len(question.block_token_counts):
        return None
    if resolved.hashes:
        seed = b"".join(struct.pack(">I", len(hash_)) + hash_ for hash_ in resolved.hashes)
    else:
        seed = resolved.exact
    members = view.members(scope)
    if not seed or not members:
        return None
    return members[int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") % len(members)]


def ranked(hints: list[Hint]) -> list[Hint]:
    return sorted(hints, key=lambda hint: (-hint.score, hint.replica.encode()))


def freshness(age_us: int, ttl_us: int) -> float:
    if age_us <= 0:
        return 1.0
    if age_us >= ttl_us:
        return 0.0
    return f32(1 - age_us / ttl_us)


def usable_pressure(view: NaiveView, question: Question, replica: str, ttl_us: int, now_us: int) -> float:
    for reporting, row in view.stats(question.tenant, question.model).items():
        if reporting == replica and now_us - row.reported_us < ttl_us:
            return pressure_factor(row)
    return 1.0


def pressure_factor(row: StatsRow) -> float:
    return min(1.0, max(0.0, f32(1 - f32(row.pressure))))


def slo_bias(question: Question, fresh: float) -> float:
    return f32(1 + fresh) if 0 < question.ttft_ms < 200 else 1.0


def distinguishing_power(matching: int, members: int) -> float:
    if members <= 1:
        return 1.0
    if matching >= members:
        return 0.0
    return f32(1 - matching / members)


def product(first: float, *factors: float) -> float:
    """The factors multiplied from left to right in single precision."""
    result = f32(first)
    for factor in factors:
        result = f32(result * factor)
    return result


def f32(value: float) -> float:
    """The nearest single-precision number."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def wrapped_sum(counts: Sequence[int]) -> int:
    """The sum as a 32-bit two's complement number."""
    return (sum(counts) + 2**31) % 2**32 - 2**31


def _reported_tier(tier: int) -> int:
    return tier if tier in (1, 2, 3) else 0


def fingerprint(tokens: Sequence[int], block_size: int) -> tuple[bytes, ...]:
    """The chain of a prompt [WIRE-150..156]."""
    if len(tokens) > MAX_TOKENS:
        return ()
    chain: list[int] = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = struct.pack(f"<{block_size}I", *tokens[start : start + block_size])
        content = xxhash.xxh3_64_intdigest(block, 1337)
        rolled = struct.pack("<QQ", chain[-1], content) if chain else b""
        chain.append(xxhash.xxh3_64_intdigest(rolled, 1337) if chain else content)
    return tuple(value.to_bytes(8, "big") for value in chain)
