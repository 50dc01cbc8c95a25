"""CachePolicy and CacheTenant: the rules that hold without a cluster too, on documents [ADM-117..124]."""

from __future__ import annotations

from collections.abc import Iterable

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.seam import introduced
from inferencecache.core.kube.backends import section, text
from inferencecache.core.policy import claim_of, sibling_violations
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.resources import (
    AnyResource,
    CachePolicy,
    CachePolicySpec,
    CacheTenant,
    CacheTenantSpec,
    InvalidResourceError,
    ObjectMeta,
    Violation,
    read_resource,
    violations,
)


def judge_policy(new: Document, old: Document | None, siblings: Iterable[Document]) -> list[Violation]:
    """What speaks against storing `new` in place of `old`, None for a new object. `siblings` are the
    objects of its kind and namespace as stored.
    """
    found = _violations(new)
    if old is not None:
        found = introduced(new, found, old, _violations(old))
    replaced = None if old is None else _claimant(old)
    return [*found, *sibling_violations(_claimant(new), map(_claimant, siblings), replaced)]


def policy_needs_siblings(new: Document, old: Document | None) -> bool:
    """Whether the others of the namespace matter: only to what claims something new [ADM-120, ADM-123]."""
    return old is None or claim_of(_claimant(new)) != claim_of(_claimant(old))


def _violations(document: Document) -> list[Violation]:
    try:
        return violations(read_resource(document, strict=False))
    except InvalidResourceError as error:
        return [Violation("Invalid", error.path, error.problem)]


def _claimant(document: Document) -> AnyResource:
    """The object as far as others may collide with it, so that a stored one that cannot be read harms
    no other [ADM-13].
    """
    metadata = section(document, "metadata")
    meta = ObjectMeta(name=text(metadata, "name"), namespace=text(metadata, "namespace"))
    if document.get("kind") == "CachePolicy":
        return CachePolicy(metadata=meta, spec=CachePolicySpec())
    tenant_id = TenantId(text(section(document, "spec"), "tenantID"))
    return CacheTenant(metadata=meta, spec=CacheTenantSpec(tenant_id=tenant_id))
