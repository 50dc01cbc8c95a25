"""The server settings of a backend, as typed values.

A backend that bypassed admission may hold what the API refuses of a container. It is told apart here: its
engines start without cache instead of not at all.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from inferencecache.controller.admission.validation.resources import resource_violations
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import NODE_LOCAL, POD_LOCAL, Backend
from inferencecache.schemas.resources.lm_cache import NodeLocalServer, PodLocalServer
from inferencecache.schemas.resources.quantities import parse_quantity

_Server = TypeVar("_Server", PodLocalServer, NodeLocalServer)


def pod_local_server(backend: Backend) -> PodLocalServer:
    """Raises `NotWiredError` when the settings are missing or make no container."""
    return _read(backend, POD_LOCAL, PodLocalServer)


def node_local_server(backend: Backend) -> NodeLocalServer:
    """As `pod_local_server`."""
    server = _read(backend, NODE_LOCAL, NodeLocalServer)
    if server.port == server.http_port:
        raise NotWiredError("the backend's spec.lmCache.nodeLocal.server.port and httpPort must differ")
    return server


def _read(backend: Backend, topology: str, kind: type[_Server]) -> _Server:
    path = f"spec.lmCache.{topology[0].lower()}{topology[1:]}.server"
    if backend.topology != topology or backend.server is None:
        raise NotWiredError(f"the backend has no {path}")
    try:
        server = msgspec.convert(backend.server, kind)
    except msgspec.ValidationError as error:
        raise NotWiredError(f"the backend's {path} is not complete: {error}") from None
    if not server.image.strip():
        raise NotWiredError(f"the backend's {path}.image is blank")
    try:
        if parse_quantity(server.l1_capacity) <= 0 or backend.chunk_tokens <= 0:
            raise NotWiredError(f"the backend's {path}.l1Capacity and chunkSizeTokens must be above 0")
        for violation in resource_violations(backend.server["resources"], f"{path}.resources"):
            raise NotWiredError(f"the backend's {violation.path}: {violation.problem}")
    except ValueError as error:  # the schema lets amounts through that are beyond all use
        raise NotWiredError(f"an amount of the backend's {path}: {error}") from None
    return server
