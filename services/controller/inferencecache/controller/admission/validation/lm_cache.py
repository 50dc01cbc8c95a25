"""Where LMCache servers run and what they are given [ADM-27, ADM-39..60]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from inferencecache.controller.admission.validation.resources import (
    LIMIT_BELOW_REQUEST,
    amount_of,
    resource_violations,
)
from inferencecache.controller.admission.validation.selector import required_selector
from inferencecache.controller.admission.validation.wording import supported
from inferencecache.core.kube.backends import (
    EVENTS_ONLY,
    LMCACHE,
    NODE_LOCAL,
    POD_LOCAL,
    TOPOLOGIES,
    Backend,
    section,
    text,
)
from inferencecache.schemas.resources import Violation
from inferencecache.schemas.resources.quantities import GIBI, parse_quantity

_LM_CACHE: Final = "spec.lmCache"
_BLOCKS: Final = {POD_LOCAL: "podLocal", NODE_LOCAL: "nodeLocal"}
_IMAGE: Final = re.compile(r"[^\s@]+@sha256:[a-f0-9]{64}")
_TAKEN_PORTS: Final = {
    5557: "the engine publishes its KV events there",
    8080: "the LMCache server answers HTTP there",
}
_GREATEST_PORT: Final = 65535
_LONGEST_RETENTION_S: Final = 86400
_HEADROOM: Final = GIBI
"""Memory that a server needs besides its cache."""


def lm_cache_violations(backend: Backend) -> Iterator[Violation]:
    """The block as a whole, by type, mode and topology."""
    present = backend.lm_cache is not None
    if backend.type != LMCACHE:
        if present:
            yield Violation("Forbidden", _LM_CACHE, f"is for type {LMCACHE}; this backend is {backend.type}")
        return
    if backend.mode == EVENTS_ONLY:
        if present:
            yield Violation("Forbidden", _LM_CACHE, f"mode {EVENTS_ONLY} connects no cache; remove it")
        return
    if not present:
        problem = f"mode Offload needs it; without a cache write integration.mode: {EVENTS_ONLY}"
        yield Violation("Required", _LM_CACHE, problem)
    elif not backend.topology:
        yield Violation("Required", f"{_LM_CACHE}.topology", "say where servers run: PodLocal or NodeLocal")
    elif backend.topology not in TOPOLOGIES:
        yield Violation("NotSupported", f"{_LM_CACHE}.topology", supported(*TOPOLOGIES))
    else:
        yield from _of_topology(backend)


def _of_topology(backend: Backend) -> Iterator[Violation]:
    topology = backend.topology
    other = next(name for name in TOPOLOGIES if name != topology)
    path = f"{_LM_CACHE}.{_BLOCKS[topology]}"
    block = section(backend.lm_cache, _BLOCKS[topology])
    if block is None:
        yield Violation("Required", path, f"topology {topology} needs it")
    elif backend.server is None:
        yield Violation("Required", f"{path}.server", f"topology {topology} needs it")
    if section(backend.lm_cache, _BLOCKS[other]) is not None:
        yield Violation("Forbidden", f"{_LM_CACHE}.{_BLOCKS[other]}", f"is for topology {other}; remove it")
    if topology == NODE_LOCAL:
        yield from required_selector(backend, "a shared server serves the engines of one domain")
        retention = (block or {}).get("idleRetentionSeconds")
        if retention is not None and not 0 <= retention <= _LONGEST_RETENTION_S:
            problem = f"must be from 0 to {_LONGEST_RETENTION_S}"
            yield Violation("Invalid", f"{path}.idleRetentionSeconds", problem)
    if backend.server is not None:
        yield from _of_server(backend.server, f"{path}.server", topology)


def _of_server(server: dict[str, Any], path: str, topology: str) -> Iterator[Violation]:
    image = text(server, "image").strip()
    if not image:
        yield Violation("Required", f"{path}.image", "name the server's image by digest")
    elif not _IMAGE.fullmatch(image):
        problem = "must be pinned: repository@sha256: and 64 hexadecimal digits in lower case"
        yield Violation("Invalid", f"{path}.image", problem)
    yield from _of_ports(server, path, topology)
    yield from _of_memory(server, path)
    for field in ("maxWorkers",) if topology == POD_LOCAL else ("maxGPUWorkers", "maxCPUWorkers"):
        if (server.get(field) or 0) < 1:
            yield Violation("Invalid", f"{path}.{field}", "must be 1 or more")
    resources = section(server, "resources") or {}
    for side in ("requests", "limits") if topology == NODE_LOCAL else ():
        if "nvidia.com/gpu" in (section(resources, side) or {}):
            problem = "a shared server uses the GPUs of its engines and must not take one; remove it"
            yield Violation("Forbidden", f"{path}.resources.{side}[nvidia.com/gpu]", problem)
    yield from resource_violations(resources, f"{path}.resources", name_errors_alone=True)


def _of_ports(server: dict[str, Any], path: str, topology: str) -> Iterator[Violation]:
    fields = ("port",) if topology == POD_LOCAL else ("port", "httpPort")
    ports = [server.get(field) or 0 for field in fields]
    for field, port in zip(fields, ports, strict=True):
        if not 1 <= port <= _GREATEST_PORT:
            yield Violation("Invalid", f"{path}.{field}", f"must be from 1 to {_GREATEST_PORT}")
        elif topology == POD_LOCAL and port in _TAKEN_PORTS:
            yield Violation("Invalid", f"{path}.{field}", f"is taken within the pod: {_TAKEN_PORTS[port]}")
    if topology == NODE_LOCAL and ports[0] == ports[1]:
        yield Violation("Invalid", f"{path}.httpPort", "must differ from port")


def _of_memory(server: dict[str, Any], path: str) -> Iterator[Violation]:
    capacity = server.get("l1Capacity")
    cache = Fraction(0) if capacity is None else parse_quantity(capacity)
    if cache <= 0:
        yield Violation("Invalid", f"{path}.l1Capacity", "must be more than 0")
    budget = cache + _HEADROOM if cache > 0 else Fraction(0)
    too_little = "must be at least l1Capacity and 1Gi"
    resources = section(server, "resources")
    requests, limits = f"{path}.resources.requests", f"{path}.resources.limits"
    request, limit = (amount_of(resources, side, "memory") or Fraction(0) for side in ("requests", "limits"))
    if (amount_of(resources, "requests", "cpu") or 0) <= 0:
        yield Violation("Required", f"{requests}[cpu]", "request a part of a CPU, such as 500m")
    if request <= 0:
        yield Violation("Required", f"{requests}[memory]", "request memory: at least l1Capacity and 1Gi")
    elif request < budget:
        yield Violation("Invalid", f"{requests}[memory]", too_little)
    if limit <= 0:
        yield Violation("Required", f"{limits}[memory]", "limit memory: at least l1Capacity and 1Gi")
        return
    if limit < request:
        yield Violation("Invalid", f"{limits}[memory]", LIMIT_BELOW_REQUEST)
    if limit < budget:
        yield Violation("Invalid", f"{limits}[memory]", too_little)
