"""The policy set: all CachePolicy and CacheTenant objects, flattened, as one value that replaces the last.

Objects are listed and the set is written in one step, and no two such steps run at a time, so that an
older set never overwrites a newer one [CTL-188, CTL-189].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from inferencecache.controller.intent.bucket import IntentBucket
from inferencecache.controller.intent.propagation import Standing
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.kube.api import KubeError, RefusedCallError
from inferencecache.core.kube.kinds import (
    CACHE_POLICIES,
    CACHE_TENANTS,
    Document,
    ObjectKey,
    ObjectKind,
    key_of,
    uid_of,
)
from inferencecache.core.log.subjects import POLICY_KEY
from inferencecache.core.policy import PolicySetTooLargeError, encode_policy_set, resolve
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.resources import (
    AnyResource,
    InvalidResourceError,
    ResourceRef,
    read_resource,
)

THE_SET: Final = ObjectKey("", POLICY_KEY)
_KINDS: Final = (CACHE_POLICIES, CACHE_TENANTS)
Told = Callable[[ObjectKind, ObjectKey], None]


class Flattened(NamedTuple):
    """The set, and for each object what is in force of it; revisions are not known yet."""

    policy_set: PolicySet
    standings: Mapping[ResourceRef, Standing]


def flatten(documents: Iterable[Document]) -> Flattened:
    """From objects as stored. One that cannot be read is left out, and says so [ADM-13]."""
    resources: list[AnyResource] = []
    lives: dict[ResourceRef, Standing] = {}
    for document in documents:
        ref = ResourceRef(document["kind"], *key_of(document))
        lives[ref] = life_of(document)
        try:
            resources.append(read_resource(document, strict=False))
        except InvalidResourceError as error:
            lives[ref] = unreadable(document, error)
    resolution = resolve(resources)
    for effect in resolution.effects:
        if not effect.in_force:
            lives[effect.ref] = lives[effect.ref]._replace(reason="NotInForce", problem=effect.text)
    return Flattened(resolution.policy_set, lives)


def life_of(document: Document) -> Standing:
    """An object's life and generation, nothing of which is published yet."""
    return Standing(uid_of(document), document["metadata"].get("generation") or 0)


def unreadable(document: Document, error: InvalidResourceError) -> Standing:
    """The same of an object that has no effect because it cannot be read."""
    return life_of(document)._replace(reason="Unreadable", problem=f"it has no effect: {error}")


def carried_on(
    before: Mapping[ResourceRef, Standing], after: Mapping[ResourceRef, Standing], revision: int
) -> dict[ResourceRef, Standing]:
    """The standings with the revision of the set that has them first: what did not change keeps its own.

    Revisions that are later than the set's are of a bucket that was lost.
    """
    standings: dict[ResourceRef, Standing] = {}
    for ref, standing in after.items():
        known = before.get(ref)
        is_kept = known is not None and known == standing._replace(revision=known.revision)
        first = known.revision if known is not None and is_kept else revision
        standings[ref] = standing._replace(revision=min(first, revision))
    return standings


class PolicySetPublisher:
    """Publishes the set on every change of its objects and every `period_s`."""

    name = "policy-set"

    def __init__(self, means: Means, bucket: IntentBucket, period_s: float, told: Told) -> None:
        """`told` is called with every object whose standing has changed."""
        self._means = means
        self._bucket = bucket
        self._period_s = period_s
        self._told = told
        self._standings: dict[ResourceRef, Standing] = {}

    def standing(self, document: Document) -> Standing | None:
        """What is published of the object; None when it never was looked at."""
        return self._standings.get(ResourceRef(document["kind"], *key_of(document)))

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """Every change but one of a status alone."""
        if change.kind not in _KINDS or _is_of_status_alone(change):
            return ()
        return (THE_SET,)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """List, flatten, write. A failure is tried again within the period [CTL-190]."""
        documents: list[Document] = []
        for kind in _KINDS:
            try:
                documents += (await self._means.api.list_all(kind)).items
            except KubeError as error:
                if not (isinstance(error, RefusedCallError) and error.is_missing):
                    raise RetryError(str(error), self._period_s) from error
                if kind is CACHE_POLICIES:  # [CTL-191]
                    return self._period_s
        flattened = flatten(documents)
        try:
            value = encode_policy_set(flattened.policy_set)
        except PolicySetTooLargeError as error:
            self._stand({ref: _refused(each, error) for ref, each in flattened.standings.items()})
            raise RetryError(str(error), self._period_s) from error
        revision = await self._bucket.put(POLICY_KEY, value)
        self._stand(carried_on(self._standings, flattened.standings, revision))
        return self._period_s

    def _stand(self, standings: dict[ResourceRef, Standing]) -> None:
        before, self._standings = self._standings, standings
        kinds = {kind.name: kind for kind in _KINDS}
        for ref, standing in standings.items():
            if before.get(ref) != standing:
                self._told(kinds[ref.kind], ObjectKey(ref.namespace, ref.name))


def _is_of_status_alone(change: Change) -> bool:
    before, after = change.before, change.after
    return (
        before is not None and after is not None and before is not after and life_of(before) == life_of(after)
    )


def _refused(standing: Standing, error: PolicySetTooLargeError) -> Standing:
    return standing._replace(reason="PolicySetTooLarge", problem=f"no set was published: {error}")
