"""The status of a CacheTenant: what its tenant holds, whether its quota counts, whether routers know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from inferencecache.controller.aggregate import Source
from inferencecache.controller.intent.cache_policies import LiveRouters
from inferencecache.controller.intent.policy_set import PolicySetPublisher
from inferencecache.controller.intent.propagation import PROPAGATED, Awaiting, propagated, runs_set
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.kube.recording import utc_now
from inferencecache.controller.reconciling.controllers import Means
from inferencecache.controller.reconciling.statuses import settle_status
from inferencecache.core.kube.backends import section, text
from inferencecache.core.kube.conditions import Verdict, conditions_of, with_conditions
from inferencecache.core.kube.kinds import CACHE_TENANTS, Document, ObjectKey, key_of
from inferencecache.schemas.ids import MAX_ID_BYTES

READY: Final = "Ready"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
_OBSERVED: Final = Verdict("True", "Observed", "the tenant is counted in the index")
BY_TENANT: Final = "tenant"
"""Index of tenants by the id that traffic carries."""


def tenant_id_of(document: Document) -> str:
    """The id that traffic carries; empty where the object has none."""
    return text(section(document, "spec"), "tenantID")


def quota_of(document: Document) -> int | None:
    """Most entries that the object grants; None when it sets no quota, 0 counts as one."""
    most = (section(document, "spec", "quota") or {}).get("maxIndexEntries")
    return most if isinstance(most, int) else None


def indexed_by_tenant(document: Document) -> Iterable[ObjectKey]:
    """What the index has the object under."""
    return (ObjectKey("", tenant_id_of(document)),)


def owner_of(documents: Iterable[Document]) -> ObjectKey | None:
    """Of the objects of one tenant id, the one whose quota counts: the first that sets one [CTL-183]."""
    owners = (key_of(each) for each in documents if tenant_id_of(each) and quota_of(each) is not None)
    return min(owners, default=None)


def tenant_verdicts(
    document: Document, owner: ObjectKey | None, entries: Mapping[str, int]
) -> dict[str, Verdict | None]:
    """`Ready` and `QuotaExceeded` of one object [CTL-183..185]. `entries` is the index by tenant id."""
    id_ = tenant_id_of(document)
    if owner is not None and owner != key_of(document):
        message = f"tenant {id_[:MAX_ID_BYTES]} is that of CacheTenant {owner}, which comes first"
        return {
            READY: Verdict("False", "DuplicateTenantID", message),
            QUOTA_EXCEEDED: Verdict("False", "NotEffective", message),
        }
    quota, held = quota_of(document), entries.get(id_, 0)
    if quota is None:
        exceeded = Verdict("False", "NoQuota", "the object sets no spec.quota.maxIndexEntries")
    elif held <= quota:
        exceeded = Verdict("False", "WithinBudget", f"the budget is {quota} entries")
    else:
        exceeded = Verdict("True", "OverEntryBudget", f"{held} entries are more than the budget of {quota}")
    return {READY: _OBSERVED, QUOTA_EXCEEDED: exceeded}


class CacheTenantStatuses:
    """Writes the statuses of tenants, from the last aggregate that was projected [CTL-168, CTL-187]."""

    name = "cachetenants"
    is_required = False

    def __init__(
        self,
        means: Means,
        publisher: PolicySetPublisher,
        routers: LiveRouters,
        look_again: Callable[[ObjectKey], None],
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`look_again` has this reconciler look at a key soon."""
        means.observed.index(CACHE_TENANTS, BY_TENANT, indexed_by_tenant)
        self._means = means
        self._publisher = publisher
        self._routers = routers
        self._look_again = look_again
        self._clock = clock
        self._entries: dict[str, int] | None = None
        self._awaiting = Awaiting()

    # -- the tick ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Nothing has to be there."""

    async def project(self, source: Source) -> None:
        """Count every tenant by this aggregate from now on."""
        self._entries = {tenant.tenant_id: tenant.index_entries for tenant in source.aggregate.tenants}
        for document in self._means.observed.all_of(CACHE_TENANTS):
            self._look_again(key_of(document))

    async def stale(self, problem: str) -> None:
        """The last counts stay [CTL-180]."""

    # -- the objects -------------------------------------------------------------------------------

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """The object, and all that are or were of the same tenant id: which of them counts may change."""
        if change.kind != CACHE_TENANTS:
            return ()
        ids = {tenant_id_of(document) for document in change.documents}
        rivals = (
            key_of(document)
            for id_ in ids
            for document in self._means.observed.indexed(CACHE_TENANTS, BY_TENANT, ObjectKey("", id_))
        )
        return tuple({change.key, *rivals})

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One tenant; again soon while routers have not read it."""
        await settle_status(self._means, CACHE_TENANTS, key, self._fields)
        document = self._means.observed.get(CACHE_TENANTS, key)
        if document is None:
            self._awaiting.forget(key)
            return None
        return self._awaiting.next_s(key, self._publisher.standing(document), self._propagated(document))

    def _fields(self, document: Document) -> dict[str, Any]:
        generation = document["metadata"].get("generation") or 0
        verdicts: dict[str, Verdict | None] = {}
        fields: dict[str, Any] = {"observedGeneration": generation}
        if self._entries is not None:
            id_ = tenant_id_of(document)
            rivals: Sequence[Document] = self._means.observed.indexed(
                CACHE_TENANTS, BY_TENANT, ObjectKey("", id_)
            )
            verdicts = tenant_verdicts(document, owner_of(rivals), self._entries)
            fields["indexEntries"] = self._entries.get(id_, 0)
        verdicts[PROPAGATED] = self._propagated(document)
        before = conditions_of(document.get("status")).values()
        fields["conditions"] = with_conditions(before, verdicts, generation=generation, now=self._clock())
        return fields

    def _propagated(self, document: Document) -> Verdict:
        return propagated(document, self._publisher.standing(document), self._routers(), runs_set)
