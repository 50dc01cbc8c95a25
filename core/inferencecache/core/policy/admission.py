"""Which objects may exist beside each other: the admission rules that look at siblings.

They are judged when an object is new, or when what must be unique changes; objects that coexist
already stay editable, and resolution has an order for them [ADM-119..124, IDX-121].
"""

from __future__ import annotations

from collections.abc import Iterable

from inferencecache.schemas.resources import AnyResource, CachePolicy, CacheTenant, Violation


def sibling_violations(
    resource: AnyResource, siblings: Iterable[AnyResource], old: AnyResource | None = None
) -> list[Violation]:
    """What speaks against `resource` beside `siblings`, itself never counted; `old` is what it replaces."""
    others = sorted((other for other in siblings if other.ref != resource.ref), key=lambda other: other.ref)
    near = [other for other in others if other.metadata.namespace == resource.metadata.namespace]
    match resource, old:
        case CachePolicy(), None:
            for other in near:
                if isinstance(other, CachePolicy):
                    problem = (
                        f"namespace {resource.metadata.namespace} has the CachePolicy {other.metadata.name} "
                        "already and one is in force; edit that one, or delete it first"
                    )
                    return [Violation("Forbidden", "metadata.name", problem)]
        case CacheTenant(), (None | CacheTenant()):
            id_ = resource.spec.tenant_id
            if isinstance(old, CacheTenant) and old.spec.tenant_id == id_:
                return []
            for other in near:
                if isinstance(other, CacheTenant) and other.spec.tenant_id == id_:
                    problem = (
                        f"the CacheTenant {other.metadata.name} of namespace {other.metadata.namespace} "
                        f"has the id {id_!r} already; edit that one, or choose another id"
                    )
                    return [Violation("Invalid", "spec.tenantID", problem)]
    return []
