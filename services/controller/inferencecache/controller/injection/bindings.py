"""How a cache server reaches the backend's remote storage."""

from __future__ import annotations

import json
from typing import NamedTuple

from inferencecache.controller.adapters import PROTOCOLS, Adapter
from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.storage import secret_key_violations
from inferencecache.controller.endpoints import problem_of_endpoint
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import EVENTS_ONLY, EXTERNAL, MANAGED, Backend, section, text


class Binding(NamedTuple):
    """A store that can be reached. `host` is bare, also for IPv6; `username` and `password` are Secret key
    selectors of the backend's namespace, None without authentication.
    """

    protocol: str
    host: str
    port: int
    username: Document | None
    password: Document | None

    @property
    def adapter_text(self) -> str:
        """Value of the cache server's `--l2-adapter` [ADM-177]."""
        settings = {"host": self.host, "port": self.port, "type": self.protocol}
        return json.dumps(settings, separators=(",", ":"))


def resolve_binding(backend: Backend, adapter: Adapter) -> Binding | None:
    """None for host memory alone, and where nothing but events is wanted. Raises `NotWiredError`
    [ADM-161..165, ADM-177].
    """
    storage = backend.remote_storage
    if storage is None:
        return None
    provider = text(storage, "provider")
    protocol = PROTOCOLS.get(provider)
    if protocol is None:
        raise NotWiredError(f"spec.remoteStorage.provider {provider!r} is not known")
    if protocol not in adapter.protocols:
        raise NotWiredError(f"{adapter} cannot use spec.remoteStorage.provider {provider} ({protocol})")
    if backend.mode == EVENTS_ONLY:
        return None
    for field in ("tls", "database"):
        if (backend.redis or {}).get(field) is not None:
            raise NotWiredError(f"spec.remoteStorage.redis.{field} is not supported; leave it out")
    host, _, port = _endpoint(backend).rpartition(":")
    authentication = section(backend.redis, "authentication")
    return Binding(
        protocol=protocol,
        host=host.removeprefix("[").removesuffix("]"),
        port=int(port),
        username=_selector(authentication, "username"),
        password=_selector(authentication, "password"),
    )


def _selector(authentication: Document | None, role: str) -> Document | None:
    selector = section(authentication, role)
    path = f"spec.remoteStorage.redis.authentication.{role}"
    for violation in () if selector is None else secret_key_violations(selector, path):
        raise NotWiredError(f"the backend's {violation.path}: {violation.problem}")
    return selector


def _endpoint(backend: Backend) -> str:
    ownership = text(backend.remote_storage, "ownership")
    match ownership:
        case "External":
            field, endpoint = "spec", text(backend.remote_storage, "endpoint")
        case "Managed" if backend.is_typed_mp:
            field, endpoint = "status", text(section(backend.status, "remoteStorage"), "endpoint")
        case _:
            raise NotWiredError(
                f"spec.remoteStorage.ownership must be {EXTERNAL} or {MANAGED}, not {ownership!r}"
            )
    problem = problem_of_endpoint(endpoint)
    if problem:
        raise NotWiredError(f"{field}.remoteStorage.endpoint {problem}")
    return endpoint.strip()
