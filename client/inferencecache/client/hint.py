"""What a lookup says, in a form that is there whatever happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import grpc

from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteResponse

FOLLOWED: Final = frozenset({"PREFIX_MATCH", "AFFINITY_HINT"})
"""Reasons that name a replica for this very prompt [WIRE-230]."""
UNREACHABLE: Final = "UNREACHABLE"
"""Our own reason: no router answered."""
TIMEOUT: Final = "TIMEOUT"
"""A router's reason, and ours where none answered before the deadline [WIRE-136]."""
INVALID_REQUEST: Final = "INVALID_REQUEST"
"""Our own reason: the prompt is none that can be sent, such as a token id below 0."""


class RankedReplica(NamedTuple):
    """`score` compares within one hint only; `tier` is 1 to 3, colder with the number, 0 for no claim."""

    id: str
    score: float = 0.0
    matched_tokens: int = 0
    hit_probability: float = 0.0
    tier: int = 0


class Hint(NamedTuple):
    """Replicas best first, and the reason code. `token_ids` are what the router made of a text, to be sent
    to the engine as they are.
    """

    reason: str
    replicas: Sequence[RankedReplica] = ()
    token_ids: Sequence[int] = ()
    lookup_us: int = 0

    @property
    def replica(self) -> str:
        """The replica to send the prompt to; empty where the gateway is to choose as it would without us."""
        return self.replicas[0].id if self.reason in FOLLOWED and self.replicas else ""


def hint_of(answer: LookupRouteResponse) -> Hint:
    """A router's answer."""
    ranked = [
        RankedReplica(
            each.replica_id, each.score, each.matched_tokens, each.estimated_cache_hit_prob, int(each.tier)
        )
        for each in answer.replica_scores
    ]
    return Hint(answer.reason_code, ranked, answer.token_ids[:], answer.lookup_latency_us)


def hint_without_answer(code: grpc.StatusCode | None) -> Hint:
    """What the failure of a call says."""
    return Hint(TIMEOUT if code is grpc.StatusCode.DEADLINE_EXCEEDED else UNREACHABLE)
