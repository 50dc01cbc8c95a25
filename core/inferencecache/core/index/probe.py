"""The synthetic state of the functional self-test: what is stored, and what a lookup of it must give.

It lives under the reserved tenant, which no public call can write or read, and which nothing counts
[IDX-187..191, CTL-133].
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from inferencecache.core.index.policy import DEFAULT_TTL_US
from inferencecache.core.index.reading import IndexView, Scope
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import Inputs, RouteRequest
from inferencecache.core.index.routing import look_up
from inferencecache.schemas.ids import PROBE_TENANT, AdapterId, HashScheme, ModelId, ReplicaId
from inferencecache.schemas.records import TIER_T1, AnyRecord, Stats, Stored

BLOCK_TOKENS: Final = 16
_DOMAIN: Final = b"inferencecache.io/probe/v1\n"
_NO_ADAPTER: Final = AdapterId("")


class Probe(NamedTuple):
    """One self-test of a backend, `<namespace>/<name>`."""

    backend: str
    model: ModelId
    scheme: HashScheme

    @property
    def replica(self) -> ReplicaId:
        """Who holds the synthetic block."""
        return ReplicaId(f"__probe-{self.backend}")

    @property
    def hash(self) -> bytes:
        """The block's hash: it depends on scheme, model and backend, and on nothing else."""
        parts = (part.encode() for part in (self.scheme, self.model, self.backend))
        return hashlib.sha256(
            _DOMAIN + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        ).digest()

    def records(self) -> tuple[AnyRecord, ...]:
        """What the probe's replica reports."""
        hash_ = self.hash
        count = BLOCK_TOKENS.to_bytes(4, "little")
        return (Stored(self.scheme, _NO_ADAPTER, TIER_T1, len(hash_), hash_, count), Stats(hit_rate=1.0))

    def is_held(self, view: IndexView, now_us: int) -> bool:
        """Whether the index holds the block."""
        scope = Scope(PROBE_TENANT, self.model, self.scheme)
        hits = view.exact(scope, _NO_ADAPTER, self.hash, now_us, DEFAULT_TTL_US)
        return any(hit.replica == self.replica for hit in hits)

    def routing_problem(self, view: IndexView, now_us: int) -> str:
        """What is wrong with the answer to a lookup of the block, empty when nothing is.

        The index's own answer is judged: floors and gates of policies never fail a probe [IDX-143].
        """
        hash_ = self.hash
        request = RouteRequest(PROBE_TENANT, self.model, self.scheme, prefix_hash=hash_)
        inputs = Inputs(exact=hash_, exact_tokens=BLOCK_TOKENS)
        reason, scores, _ = look_up(view, request, inputs, DEFAULT_TTL_US, now_us)
        if reason is not Reason.PREFIX_MATCH:
            return f"got {reason.value}"
        if all(score.replica != self.replica for score in scores):
            return f"got {reason.value} without {self.replica}"
        return ""
