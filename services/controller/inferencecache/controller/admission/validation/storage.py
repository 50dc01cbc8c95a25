"""Provider, ownership and settings of the remote store [ADM-28..38, ADM-61..70]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from inferencecache.controller.adapters import ADAPTERS
from inferencecache.controller.endpoints import namespace_of_endpoint, problem_of_endpoint
from inferencecache.core.kube.backends import EXTERNAL, MANAGED, Backend, section, text
from inferencecache.schemas.resources import Violation

STORAGE: Final = "spec.remoteStorage"
_REDIS: Final = f"{STORAGE}.redis"
_AUTHENTICATION: Final = f"{_REDIS}.authentication"
_LONGEST_NAME: Final = 253
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_SECRET_KEY: Final = re.compile(r"(?!\.$|\.\.)[-._A-Za-z0-9]+", re.ASCII)


def is_subdomain(name: str) -> bool:
    """Whether a text is a DNS-1123 subdomain."""
    return len(name) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(name) is not None


def ownership_violations(backend: Backend) -> Iterator[Violation]:
    """Who runs the store decides which settings there are."""
    storage = backend.remote_storage
    if storage is None:
        return
    if not (provider := text(storage, "provider")):
        yield Violation("Required", f"{STORAGE}.provider", "name the kind of store: Redis")
    if not (ownership := text(storage, "ownership")):
        yield Violation("Required", f"{STORAGE}.ownership", "say who runs the store: Managed or External")
    yield from _of_endpoint(ownership, text(storage, "endpoint"))
    if ownership == EXTERNAL and storage.get("workload") is not None:
        yield _only_managed(f"{STORAGE}.workload")
    redis = backend.redis
    if redis is None:
        return
    if provider != "Redis":
        yield Violation("Forbidden", _REDIS, "is for the provider Redis")
    if ownership == EXTERNAL and text(redis, "image").strip():
        yield _only_managed(f"{_REDIS}.image")
    if ownership == EXTERNAL and redis.get("resources") is not None:
        yield _only_managed(f"{_REDIS}.resources")


def _of_endpoint(ownership: str, endpoint: str) -> Iterator[Violation]:
    path = f"{STORAGE}.endpoint"
    blank = not endpoint.strip()
    if ownership == MANAGED and not blank:
        problem = "a managed store gets its address from the controller, see status.remoteStorage.endpoint"
        yield Violation("Forbidden", path, problem)
    elif ownership == EXTERNAL and blank:
        yield Violation("Required", path, "write the store's address as host:port")
    elif ownership == EXTERNAL and (problem := problem_of_endpoint(endpoint)):
        yield Violation("Invalid", path, problem)


def _only_managed(path: str) -> Violation:
    return Violation("Forbidden", path, "is for ownership Managed; whoever runs this store sets it there")


def redis_violations(backend: Backend) -> Iterator[Violation]:
    """Which Redis features engines can use."""
    redis = backend.redis
    if redis is None:
        return
    authentication = section(redis, "authentication")
    if authentication is not None:
        yield from _of_authentication(backend, authentication)
    if redis.get("tls") is not None:
        yield Violation("Forbidden", f"{_REDIS}.tls", "LMCache cannot reach Redis over TLS; remove it")
    if redis.get("database") is not None:
        yield Violation("Forbidden", f"{_REDIS}.database", "LMCache uses database 0; remove it")


def _of_authentication(backend: Backend, authentication: dict[str, Any]) -> Iterator[Violation]:
    username = section(authentication, "username")
    runtimes = {adapter.runtime for adapter in ADAPTERS}
    if not backend.is_typed_mp or backend.runtime_id not in runtimes:
        problem = "is for type LMCache with topology PodLocal or NodeLocal"
        yield Violation("Forbidden", _AUTHENTICATION, problem)
    else:
        yield from _of_selector(section(authentication, "password") or {}, f"{_AUTHENTICATION}.password")
        if username is not None:
            yield from _of_selector(username, f"{_AUTHENTICATION}.username")
    if username is not None and text(backend.remote_storage, "ownership") == MANAGED:
        problem = "a managed Redis has the default user only; remove it"
        yield Violation("Forbidden", f"{_AUTHENTICATION}.username", problem)


def _of_selector(selector: dict[str, Any], path: str) -> Iterator[Violation]:
    yield from secret_key_violations(selector, path)
    if selector.get("optional") is True:
        problem = "engines do not start without the credential; remove it"
        yield Violation("Forbidden", f"{path}.optional", problem)


def secret_key_violations(selector: dict[str, Any], path: str) -> Iterator[Violation]:
    """Names of a Secret, or ConfigMap, and of a key in it."""
    name, key = text(selector, "name"), text(selector, "key")
    if not name.strip():
        yield Violation("Required", f"{path}.name", "name the Secret")
    elif not is_subdomain(name):
        yield Violation("Invalid", f"{path}.name", "is no name of a Secret: write a DNS subdomain")
    if not key.strip():
        yield Violation("Required", f"{path}.key", "name the key within the Secret")
    elif len(key) > _LONGEST_NAME or not _SECRET_KEY.fullmatch(key):
        yield Violation("Invalid", f"{path}.key", "is no key of a Secret: letters, digits, '-', '_' and '.'")


def namespace_violations(backend: Backend) -> Iterator[Violation]:
    """A store of another namespace is used only where the object says so [ADM-68]."""
    namespace = namespace_of_endpoint(text(backend.remote_storage, "endpoint"))
    if namespace and namespace != backend.namespace and not backend.allow_cross_namespace:
        problem = (
            f"names a Service of namespace {namespace}, the CacheBackend is in {backend.namespace}; set "
            "spec.allowCrossNamespace to true to allow that"
        )
        yield Violation("Forbidden", f"{STORAGE}.endpoint", problem)
