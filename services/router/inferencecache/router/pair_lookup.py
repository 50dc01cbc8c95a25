"""`LookupPDRoute`: a replica for prefill and one for decode, a shell over the pure decision.

Like `LookupRoute` it never fails: what goes wrong inside ends as `NO_HINT`.
"""

from __future__ import annotations

import time

from inferencecache.core.index.credits import Credits
from inferencecache.core.index.pairs import PairDecision, route_pair
from inferencecache.core.index.policy import knobs_of
from inferencecache.core.index.reason import Reason
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.index.routing import UNANSWERED, Decision
from inferencecache.core.index.work import Assigned, AssignedWork
from inferencecache.core.service import get_logger
from inferencecache.router.lookup import account_of, believed_work
from inferencecache.router.views import LiveFollowing, index_of
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, TenantId
from inferencecache.v1alpha1.inferencecache_pb2 import LookupPDRouteRequest, LookupPDRouteResponse

log = get_logger("lookup")


class PairLookup:
    """Answers from the views and topologies as they are; arguments as those of `Lookup`."""

    def __init__(
        self,
        following: LiveFollowing,
        block_size: int,
        work: AssignedWork | None = None,
        credited: Credits | None = None,
    ) -> None:
        self._following = following
        self._block_size = block_size
        self._work = work
        self._credited = credited

    async def answer(self, message: LookupPDRouteRequest) -> LookupPDRouteResponse:
        """Both replicas with the reason of the prefill one, or a reason without replicas."""
        try:
            decision = self._decide(message)
        except Exception:
            log.exception("lookup_failed")
            decision = PairDecision(UNANSWERED)
        prefill = decision.prefill
        if decision.decode is None:
            return LookupPDRouteResponse(reason_code=prefill.reason.value)
        return LookupPDRouteResponse(
            prefill_replica_id=prefill.scores[0].replica,
            decode_replica_id=decision.decode,
            transport_hint=decision.transport,
            reason_code=prefill.reason.value,
        )

    def _decide(self, message: LookupPDRouteRequest) -> PairDecision:
        """A topology that is not named is no error, one that nobody knows is [WIRE-145]."""
        if not message.pd_topology_ref:
            return PairDecision(UNANSWERED)
        topology = self._following.topology(message.pd_topology_ref)
        if topology is None:
            return PairDecision(Decision(Reason.UNKNOWN_TOPOLOGY))
        request = RouteRequest(
            TenantId(message.tenant_id),
            ModelId(message.model_id),
            HashScheme(message.hash_scheme),
            AdapterId(message.adapter_id),
            message.prefix_hash,
            message.prefix_token_count,
            message.block_hashes[:],
            message.block_token_counts[:],
            message.token_ids[:],
            block_size=self._block_size,
        )
        index = index_of(self._following, request.tenant, request.model)
        policy = self._following.policy(request.tenant)
        now_s = time.monotonic()
        account = account_of(index, request)
        work = believed_work(self._work, index, request, account, now_s)
        decision = route_pair(index, policy, topology, request, index.now_us, work)
        if decision.decode is not None:
            self._account(account, decision, now_s)
            if self._credited is not None and knobs_of(policy).lfu:
                prefill = decision.prefill
                self._credited.add(request, prefill._replace(scores=prefill.scores[:1]))
        return decision

    def _account(self, account: tuple[TenantId, ModelId], decision: PairDecision, now_s: float) -> None:
        """Prefill computes what it does not hold, decode takes over the whole prompt."""
        prefill, decode = decision.prefill, decision.decode
        if self._work is not None and decode is not None and prefill.inputs is not None:
            for replica, tokens in (
                (prefill.scores[0].replica, prefill.uncached_tokens),
                (decode, prefill.inputs.tokens),
            ):
                self._work.assign(Assigned(*account, replica, tokens), now_s)
