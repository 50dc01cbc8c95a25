"""A lookup from its request to its reason code: the decision table of section 12, as a pure function.

The steps are numbered as in the table of the index rules [IDX-131..143, WIRE-056]. A caller's
deadline is the caller's to watch: it answers `TIMED_OUT` instead of what is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.core.index.affinity import pick, seed_of
from inferencecache.core.index.policy import DEFAULT_LOAD_WEIGHT, Knobs, knobs_of
from inferencecache.core.index.ranking import Conditions, Score, rank_hits, rank_hot, rank_runs
from inferencecache.core.index.reading import SILENT_US, IndexView, Scope
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import Inputs, RouteRequest, resolve
from inferencecache.core.index.single import single
from inferencecache.core.index.work import NO_WORK, least_busy, penalties
from inferencecache.schemas.ids import PROBE_TENANT, ReplicaId
from inferencecache.schemas.policy import ResolvedPolicy

# Settings of a CachePolicy that may keep a match from the caller, as the policy names them.
MINIMUM_PREFIX_TOKENS: Final = "minimumPrefixTokens"
MINIMUM_MATCHED_TOKENS: Final = "minimumMatchedTokens"
ROUTING_FLOOR_SCORE: Final = "routingFloorScore"
ENABLE_TENANT_HOT: Final = "enableTenantHot"


class Outcome(NamedTuple):
    """What the index alone says; `NO_HINT` is its neutral outcome, "no match".

    `gate` is the policy setting that made it so of what had matched, empty when none did.
    """

    reason: Reason
    scores: tuple[Score, ...] = ()
    gate: str = ""


NO_MATCH: Final = Outcome(Reason.NO_HINT)


class Decision(NamedTuple):
    """The answer to a lookup.

    `echo_adapter` says whether the answer names the adapter that was consulted [WIRE-072],
    `echo_tokens` are tokens made from the caller's text [WIRE-073], `inputs` is what was looked up,
    `None` when the index was not consulted. `found` is what was found before the policy's gates, and
    `gate` the setting that let nothing of it through, if one did.
    """

    reason: Reason
    scores: tuple[Score, ...] = ()
    echo_adapter: bool = False
    echo_tokens: Sequence[int] = ()
    inputs: Inputs | None = None
    found: tuple[Score, ...] = ()
    gate: str = ""

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that the first replica of the answer will have to compute, 0 when unknown."""
        if self.inputs is None or not self.scores:
            return 0
        return max(0, self.inputs.tokens - self.scores[0].matched_tokens)


UNANSWERED: Final = Decision(Reason.NO_HINT)
TIMED_OUT: Final = Decision(Reason.TIMEOUT)


def needs_tokens(policy: ResolvedPolicy | None, request: RouteRequest) -> bool:
    """Whether `route` comes to the request's text: its tokens are then to be made first [WIRE-056]."""
    knobs = knobs_of(policy)
    return _is_resolved(knobs, request) and request.is_about_text(knobs.chain_matching)


def needs_digests(policy: ResolvedPolicy | None, request: RouteRequest) -> Sequence[int]:
    """The tokens that `route` fingerprints if the request has no `digests`; many are slow to do."""
    knobs = knobs_of(policy)
    return request.tokens_that_count(knobs.chain_matching) if _is_resolved(knobs, request) else ()


def _is_resolved(knobs: Knobs, request: RouteRequest) -> bool:
    """Whether `route` comes as far as choosing an input, past steps 1 and 3."""
    return request.tenant != PROBE_TENANT and (request.has_chain or not knobs.require_chain)


def route(
    view: IndexView,
    policy: ResolvedPolicy | None,
    request: RouteRequest,
    now_us: int,
    work: Mapping[ReplicaId, float] = NO_WORK,
) -> Decision:
    """Answer a lookup from one view at one moment of its log time.

    `work` is what replicas have been assigned lately, in tokens; equal or no work changes nothing.
    """
    if request.tenant == PROBE_TENANT:  # step 1
        return UNANSWERED
    knobs = knobs_of(policy)
    if knobs.require_chain and not request.has_chain:  # step 3
        return Decision(Reason.POLICY_REQUIRES_CHAIN)
    inputs, echo = resolve(request, knobs.chain_matching)
    if inputs is None:  # step 4
        return Decision(Reason.NO_HINT, echo_tokens=echo)
    too_small = knobs.minimum_prefix_tokens > 0 and inputs.tokens < knobs.minimum_prefix_tokens
    if too_small and not knobs.affinity_routing:  # step 5
        return Decision(Reason.NO_HINT, echo_tokens=echo, gate=MINIMUM_PREFIX_TOKENS)
    work = work if knobs.load_balancing else NO_WORK
    found = look_up(view, request, inputs, knobs.ttl_us, now_us, work, knobs.load_weight)  # step 6
    outcome = _gated(found, knobs, too_small)  # steps 7 to 9
    gate = outcome.gate
    if outcome.reason is Reason.NO_HINT and knobs.affinity_routing:  # step 10
        outcome = _affinity(view, request, inputs, now_us, work)
    return Decision(outcome.reason, outcome.scores, True, echo, inputs, found.scores, gate)


def look_up(
    view: IndexView,
    request: RouteRequest,
    inputs: Inputs,
    ttl_us: int,
    now_us: int,
    work: Mapping[ReplicaId, float] = NO_WORK,
    load_weight: float = DEFAULT_LOAD_WEIGHT,
) -> Outcome:
    """Match, else fall back to a hot replica, else say which key is unknown; no policy but the TTL."""
    if not request.has_all_keys:
        return NO_MATCH
    tenant, model = request.tenant, request.model
    scope = Scope(tenant, model, request.scheme)
    members = view.members(scope)
    if not members:
        return _unknown(view, scope)
    burden = penalties(work, candidates(view, scope, now_us, work), load_weight)
    conditions = Conditions(now_us, ttl_us, request.ttft_ms, len(members), view.stats(tenant, model), burden)
    if inputs.hashes:
        runs = view.leading_runs(scope, request.adapter, inputs.hashes, now_us, ttl_us)
        scores = rank_runs(runs, inputs.counts, conditions)
    else:
        hits = view.exact(scope, request.adapter, inputs.exact, now_us, ttl_us)
        scores = rank_hits(hits, conditions)
        if not scores and (hot := rank_hot(members, conditions, inputs.tokens)):
            return Outcome(Reason.TENANT_HOT, hot)
    return Outcome(Reason.PREFIX_MATCH, scores) if scores else NO_MATCH


def _unknown(view: IndexView, scope: Scope) -> Outcome:
    """Why a scope without members has none: the outermost key that nothing held has [IDX-111, WIRE-144]."""
    if view.is_empty():
        return NO_MATCH
    if not view.has_tenant(scope.tenant):
        return Outcome(Reason.UNKNOWN_TENANT)
    if not view.has_model(scope.tenant, scope.model):
        return Outcome(Reason.UNKNOWN_MODEL)
    return Outcome(Reason.UNKNOWN_HASH_SCHEME)


def _gated(outcome: Outcome, knobs: Knobs, too_small: bool) -> Outcome:
    """Steps 7 to 9b: what the tenant's policy does not let through becomes no match."""
    reason, scores, _ = outcome
    if reason is Reason.TENANT_HOT:
        if knobs.tenant_hot and not too_small:
            return outcome
        return NO_MATCH._replace(gate=MINIMUM_PREFIX_TOKENS if too_small else ENABLE_TENANT_HOT)
    if reason is not Reason.PREFIX_MATCH:
        return outcome
    if too_small:
        return NO_MATCH._replace(gate=MINIMUM_PREFIX_TOKENS)
    least = knobs.minimum_matched_tokens
    if least > 0:
        scores = tuple([score for score in scores if score.matched_tokens >= least])
        if not scores:
            return NO_MATCH._replace(gate=MINIMUM_MATCHED_TOKENS)
    floor = knobs.routing_floor_score
    if floor > 0 and scores[0].score < single(floor):
        return NO_MATCH._replace(gate=ROUTING_FLOOR_SCORE)
    return Outcome(reason, scores)


def candidates(
    view: IndexView, scope: Scope, now_us: int, work: Mapping[ReplicaId, float]
) -> Sequence[ReplicaId]:
    """Whose work is compared, ascending: the members and, once one has work, who began and holds nothing.

    Else the first replica of a cold domain would be its only member, and with nobody to compare it to
    everybody would be sent there. Without work the members alone count [IDX-104], also where other
    domains of the model have some.
    """
    members = view.members(scope)
    if not any(replica in work for replica in members):
        return members
    newcomers = view.newcomers(scope, now_us - SILENT_US)
    return sorted((*members, *newcomers)) if newcomers else members


def _affinity(
    view: IndexView, request: RouteRequest, inputs: Inputs, now_us: int, work: Mapping[ReplicaId, float]
) -> Outcome:
    """One of the least busy replicas, the one that equal prompts agree on, if the request gives anything
    to go by [IDX-102..107].
    """
    if not (request.has_all_keys and request.has_balanced_chain):
        return NO_MATCH
    seed = seed_of(inputs)
    among = candidates(view, Scope(request.tenant, request.model, request.scheme), now_us, work)
    if not (seed and among):
        return NO_MATCH
    return Outcome(Reason.AFFINITY_HINT, (Score(pick(seed, least_busy(work, among))),))
