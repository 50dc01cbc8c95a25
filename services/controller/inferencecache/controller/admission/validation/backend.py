"""All rules of a CacheBackend, in the order of the contract [ADM-22..114]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from inferencecache.controller.adapters import find_adapter
from inferencecache.controller.admission.decoding import unreadable_values
from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.engine import (
    adapter_violations,
    events_only_violations,
    kernel_check_violations,
    role_violations,
)
from inferencecache.controller.admission.validation.hi_cache import hi_cache_violations
from inferencecache.controller.admission.validation.lm_cache import lm_cache_violations
from inferencecache.controller.admission.validation.overrides import override_violations
from inferencecache.controller.admission.validation.resources import resource_violations
from inferencecache.controller.admission.validation.seam import introduced
from inferencecache.controller.admission.validation.selector import domain_violations, selector_violations
from inferencecache.controller.admission.validation.storage import (
    STORAGE,
    namespace_violations,
    ownership_violations,
    redis_violations,
)
from inferencecache.core.kube.backends import Backend, section, text
from inferencecache.schemas.resources import CacheBackend, Violation


def judge_backend(new: Document, old: Document | None, siblings: Iterable[Document]) -> list[Violation]:
    """What speaks against storing `new` in place of `old`, None for a new object. `siblings` are the
    backends of its namespace as stored.

    Selector and domain are judged whatever was stored [ADM-26, ADM-114]. A stored object that cannot be
    read has nothing that `new` could be held up against, so it can be repaired [ADM-13].
    """
    backend = Backend(new)
    found = list(_violations(backend))
    if old is not None and not unreadable_values(old, CacheBackend):
        found = introduced(new, found, old, _violations(Backend(old)))
    always = domain_violations(backend, map(Backend, siblings))
    # Two rules may say the same of one field; it is told once.
    return list(dict.fromkeys((*selector_violations(backend), *found, *always)))


def backend_needs_siblings(new: Document, old: Document | None) -> bool:
    """Whether the other backends of the namespace matter: to every backend with a selector [ADM-12]."""
    return bool(Backend(new).match_labels)


def _violations(backend: Backend) -> Iterator[Violation]:
    adapter = find_adapter(backend)
    yield from ownership_violations(backend)
    yield from lm_cache_violations(backend)
    yield from redis_violations(backend)
    yield from namespace_violations(backend)
    resources = section(backend.redis, "resources")
    if resources is not None and text(backend.remote_storage, "provider") == "Redis":
        yield from resource_violations(resources, f"{STORAGE}.redis.resources")
    yield from events_only_violations(backend)
    yield from hi_cache_violations(backend)
    yield from kernel_check_violations(backend)
    yield from role_violations(backend)
    yield from adapter_violations(backend, adapter)
    yield from override_violations(backend, adapter)
