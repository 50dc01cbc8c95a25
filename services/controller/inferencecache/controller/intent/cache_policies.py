"""The status of a CachePolicy: whether all live routers act on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from inferencecache.controller.intent.policy_set import PolicySetPublisher
from inferencecache.controller.intent.propagation import (
    PROPAGATED,
    Awaiting,
    Standing,
    propagated,
    runs_set,
)
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.kube.recording import utc_now
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.controller.reconciling.statuses import settle_status
from inferencecache.core.kube.conditions import conditions_of, with_conditions
from inferencecache.core.kube.kinds import CACHE_POLICIES, Document, ObjectKey
from inferencecache.schemas.members import RouterMember

LiveRouters = Callable[[], Sequence[RouterMember]]


def policy_status(
    document: Document, standing: Standing | None, routers: Sequence[RouterMember], now: datetime
) -> dict[str, Any]:
    """All fields of the status."""
    generation = document["metadata"].get("generation") or 0
    verdict = propagated(document, standing, routers, runs_set)
    before = conditions_of(document.get("status")).values()
    return {
        "observedGeneration": generation,
        "conditions": with_conditions(before, {PROPAGATED: verdict}, generation=generation, now=now),
    }


class CachePolicyStatuses:
    """Writes the statuses of policies."""

    name = "cachepolicies"

    def __init__(
        self,
        means: Means,
        publisher: PolicySetPublisher,
        routers: LiveRouters,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._means = means
        self._publisher = publisher
        self._routers = routers
        self._clock = clock
        self._awaiting = Awaiting()

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """Changes of the policy itself; what is published of it is told by the publisher."""
        return (change.key,) if change.kind == CACHE_POLICIES else ()

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One policy; again soon while routers have not read it."""
        routers, now = self._routers(), self._clock()
        await settle_status(
            self._means,
            CACHE_POLICIES,
            key,
            lambda document: policy_status(document, self._publisher.standing(document), routers, now),
        )
        document = self._means.observed.get(CACHE_POLICIES, key)
        if document is None:
            self._awaiting.forget(key)
            return None
        standing = self._publisher.standing(document)
        return self._awaiting.next_s(key, standing, propagated(document, standing, routers, runs_set))
