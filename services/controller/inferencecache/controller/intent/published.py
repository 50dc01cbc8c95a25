"""Objects that routers get one by one, each under a key of its own: templates and topologies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from inferencecache.controller.intent.bucket import IntentBucket
from inferencecache.controller.intent.cache_policies import LiveRouters
from inferencecache.controller.intent.policy_set import life_of, unreadable
from inferencecache.controller.intent.propagation import (
    PROPAGATED,
    Awaiting,
    Standing,
    has_read,
    propagated,
)
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.kube.recording import utc_now
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.controller.reconciling.statuses import settle_status
from inferencecache.core.kube.conditions import conditions_of, with_conditions
from inferencecache.core.kube.kinds import Document, ObjectKey, ObjectKind
from inferencecache.schemas.resources import AnyResource, InvalidResourceError, read_resource


class Resolved(NamedTuple):
    """What routers get of an object, and what its status says besides."""

    value: bytes
    status: Mapping[str, Any] = {}


class PublishedKind(Protocol):
    """How objects of a kind are published."""

    kind: ObjectKind

    def bucket_key(self, key: ObjectKey) -> str:
        """The key of an object in the bucket."""
        ...

    def resolve(self, resource: AnyResource) -> Resolved:
        """What routers get of it now."""
        ...

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """Objects that resolve to something else after a change of another object."""
        ...


class PublishedObjects:
    """Publishes the objects of one kind, and tells in their statuses whether routers have them."""

    def __init__(
        self,
        means: Means,
        bucket: IntentBucket,
        published: PublishedKind,
        routers: LiveRouters,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.name = published.kind.plural
        self._means = means
        self._bucket = bucket
        self._published = published
        self._routers = routers
        self._clock = clock
        self._awaiting = Awaiting()

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """The object itself, and those that other objects have a part in."""
        own = (change.key,) if change.kind == self._published.kind else ()
        return (*own, *self._published.concerns(change))

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Write or remove the value of one object; again soon while routers have not read it."""
        document = await self._means.api.get(self._published.kind, *key)
        if document is None:
            self._awaiting.forget(key)
            await self._bucket.remove(self._published.bucket_key(key))
            return None
        standing, status = await self._publish(key, document)
        now, routers = self._clock(), self._routers()

        def fields(document: Document) -> dict[str, Any]:
            generation = document["metadata"].get("generation") or 0
            verdict = propagated(document, standing, routers, has_read)
            before = conditions_of(document.get("status")).values()
            conditions = with_conditions(before, {PROPAGATED: verdict}, generation=generation, now=now)
            return {**status, "observedGeneration": generation, "conditions": conditions}

        await settle_status(self._means, self._published.kind, key, fields)
        return self._awaiting.next_s(key, standing, propagated(document, standing, routers, has_read))

    async def _publish(self, key: ObjectKey, document: Document) -> tuple[Standing, Mapping[str, Any]]:
        try:
            resource = read_resource(document, strict=False)
        except InvalidResourceError as error:
            await self._bucket.remove(self._published.bucket_key(key))
            return unreadable(document, error), {}
        resolved = self._published.resolve(resource)
        revision = await self._bucket.put(self._published.bucket_key(key), resolved.value)
        return life_of(document)._replace(revision=revision), resolved.status
