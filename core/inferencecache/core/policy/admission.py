"""Which objects may exist beside each other: the admission rules that look at siblings.

They are judged when an object is new, or when what must be unique changes; objects that coexist
already stay editable, and resolution has an order for them [ADM-119..124, IDX-121].
"""

from __future__ import annotations

from collections.abc import Iterable

from inferencecache.schemas.resources import AnyResource, CachePolicy, CacheTenant, Violation


def claim_of(resource: AnyResource) -> tuple[str, ...] | None:
    """What only one object is meant to have: a namespace's policy, a tenant's id within a namespace."""
    match resource:
        case CachePolicy():
            return ("policy", resource.metadata.namespace)
        case CacheTenant():
            return ("tenant", resource.metadata.namespace, resource.spec.tenant_id)
    return None


def sibling_violations(
    resource: AnyResource, siblings: Iterable[AnyResource], old: AnyResource | None = None
) -> list[Violation]:
    """What speaks against `resource` beside `siblings`, itself never counted; `old` is what it replaces."""
    claim = claim_of(resource)
    if claim is None or (old is not None and claim_of(old) == claim):
        return []
    rivals = [other.ref for other in siblings if other.ref != resource.ref and claim_of(other) == claim]
    if not rivals:
        return []
    holder = min(rivals)
    if isinstance(resource, CacheTenant):
        problem = (
            f"the CacheTenant {holder.name} of namespace {holder.namespace} has the id "
            f"{resource.spec.tenant_id!r} already; edit that one, or choose another id"
        )
        return [Violation("Invalid", "spec.tenantID", problem)]
    problem = (
        f"namespace {holder.namespace} has the CachePolicy {holder.name} already and only one is in force; "
        "edit that one, or delete it first"
    )
    return [Violation("Forbidden", "metadata.name", problem)]
