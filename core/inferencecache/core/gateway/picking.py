"""The pick: which endpoint a request goes to, and who is next where it cannot be reached.

The replicas of a usable hint come first, in the order of the hint; then the others, those with the
least to do first. Without a usable hint the least busy is the pick. Endpoints that refused lately come
behind all others. Nobody is picked who is not ready, or outside of the subset that a proxy allows.

Endpoints that are equally idle are taken in turn, which is the caller's to count: gateways that all took
the first of equals would meet there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from inferencecache.core.gateway.endpoints import Endpoint, EndpointId, Endpoints
from inferencecache.core.gateway.refusals import Refusals
from inferencecache.core.index.work import LEAST_WITHIN
from inferencecache.schemas.ids import ReplicaId

MOST_FALLBACKS: Final = 3
"""A proxy that was refused by so many does better to ask anew."""


class Pick(NamedTuple):
    """Endpoints in the order of preference; `is_hinted` says whether the first one is what the hint named.

    Without endpoints there is nobody to pick.
    """

    endpoints: Sequence[Endpoint] = ()
    is_hinted: bool = False

    @property
    def first(self) -> Endpoint | None:
        return self.endpoints[0] if self.endpoints else None

    @property
    def addresses(self) -> str:
        """As proxies read them: IP:PORT, separated by commas."""
        return ",".join(endpoint.address for endpoint in self.endpoints)


def pick(
    endpoints: Endpoints,
    hinted: Sequence[ReplicaId],
    work: Mapping[ReplicaId, float],
    open_tokens: Mapping[EndpointId, int],
    refusals: Refusals,
    turn: int,
    now_s: float,
    subset: Collection[str] | None = None,
) -> Pick:
    """Choose among the endpoints as they are at `now_s`.

    `hinted` are the replicas of a usable hint, best first; `work` is what replicas were assigned lately
    and `open_tokens` what is still under way here, in tokens; `turn` is any number that grows from
    request to request.
    """
    ready = endpoints.ready(subset)
    if not ready:
        return Pick()
    burden = {each.id: max(work.get(each.replica, 0.0), float(open_tokens.get(each.id, 0))) for each in ready}
    is_ready = burden.keys()
    named = [
        each
        for replica in hinted
        for each in sorted(endpoints.of(replica), key=lambda each: burden.get(each.id, 0.0))
        if each.id in is_ready
    ]
    by_load = _by_load(ready, burden, turn)
    in_order = list(dict.fromkeys((*named, *by_load)))
    until = {each.id: refusals.passed_over_until(each.id, now_s) for each in in_order}
    in_order.sort(key=lambda each: until[each.id])
    chosen = in_order[: 1 + MOST_FALLBACKS]
    return Pick(chosen, is_hinted=bool(named) and chosen[0] == named[0])


def _by_load(ready: Sequence[Endpoint], burden: Mapping[EndpointId, float], turn: int) -> list[Endpoint]:
    """The least busy first; those that are as idle as the first, within what says nothing, by turns."""
    in_order = sorted(ready, key=_burden_in(burden))
    least = burden[in_order[0].id] * (1 + LEAST_WITHIN)
    idle = [each for each in in_order if burden[each.id] <= least]
    start = turn % len(idle)
    return idle[start:] + idle[:start] + in_order[len(idle) :]


def _burden_in(burden: Mapping[EndpointId, float]) -> Callable[[Endpoint], float]:
    def key(endpoint: Endpoint) -> float:
        return burden[endpoint.id]

    return key
