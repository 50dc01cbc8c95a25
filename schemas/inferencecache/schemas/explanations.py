"""Why a lookup is answered as it is: the answer to a request on `ic.explain`, as JSON.

The request is a `LookupRouteRequest` of the gRPC contract, encoded. Nothing of the prompt is in the answer.
"""

from __future__ import annotations

import msgspec

from inferencecache.schemas.ids import ReplicaId


class ExplainedReplica(msgspec.Struct, frozen=True, rename="camel"):
    """One replica that the lookup could have named, with every factor of its score.

    `rank` is its place in the answer, from 1, and 0 when it is not in it. `score` is the product of `value`
    (matched tokens, or a hit rate) and the four factors, minus `penalty`; `work_tokens` is W. It is what a
    match was worth also where a setting kept it back, so that the answer is a hint by affinity, of score 0.
    One that is no `member` began and holds nothing in the domain yet.
    """

    replica: ReplicaId
    rank: int = 0
    member: bool = True
    matched_tokens: int = 0
    blocks: int = 0
    tier: int = 0
    value: float = 0.0
    freshness: float = 0.0
    pressure_factor: float = 1.0
    slo_bias: float = 1.0
    distinguishing_power: float = 1.0
    unbalanced_score: float = 0.0
    work_tokens: float = 0.0
    penalty: float = 0.0
    score: float = 0.0


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """A decision with the settings it was made by. `time_us` is log time, `router` the id of who decided.

    `gate` names the policy setting that let nothing of what was found through, if one did; `error` says why
    there is no decision.
    """

    router: str = ""
    error: str = ""
    reason: str = ""
    gate: str = ""
    time_us: int = 0
    prompt_tokens: int = 0
    ttl_ms: int = 0
    minimum_prefix_tokens: int = 0
    minimum_matched_tokens: int = 0
    routing_floor_score: float = 0.0
    load_balancing: bool = True
    load_weight: float = 0.0
    replicas: tuple[ExplainedReplica, ...] = ()
