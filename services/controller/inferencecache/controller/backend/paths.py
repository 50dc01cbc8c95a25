"""What a backend's spec asks of the controller [CTL-25..30]."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from inferencecache.controller.adapters import PROTOCOLS, find_adapter
from inferencecache.controller.backend.verdicts import (
    DEGRADED,
    ENGINE_COMPATIBILITY,
    ENGINE_KERNELS_HEALTHY,
    FUNCTIONAL_PROBE_OK,
    PROGRESSING,
    READY,
    REMOTE_STORAGE_READY,
    T2_DEGRADED,
)
from inferencecache.core.kube.backends import EVENTS_ONLY, EXTERNAL, MANAGED, Backend, text


class Path(Enum):
    """Where a pass goes."""

    UNMANAGED = "unmanaged"
    EVENTS_ONLY = "events-only"
    HOST_ONLY = "host-only"
    EXTERNAL = "external"
    MANAGED = "managed"


PUBLISHED: Final[Mapping[Path, frozenset[str]]] = {
    Path.UNMANAGED: frozenset(),
    Path.EVENTS_ONLY: frozenset({READY, DEGRADED, PROGRESSING}),
    Path.HOST_ONLY: frozenset({READY, DEGRADED, PROGRESSING, ENGINE_KERNELS_HEALTHY, ENGINE_COMPATIBILITY}),
    Path.EXTERNAL: frozenset({READY, PROGRESSING, REMOTE_STORAGE_READY}),
    Path.MANAGED: frozenset(
        {
            READY,
            DEGRADED,
            PROGRESSING,
            REMOTE_STORAGE_READY,
            FUNCTIONAL_PROBE_OK,
            ENGINE_KERNELS_HEALTHY,
            ENGINE_COMPATIBILITY,
            T2_DEGRADED,
        }
    ),
}
"""Conditions that a path may publish; it takes the others away. The connector's has its own rule [CTL-88]."""


def choose_path(backend: Backend) -> Path:
    """The first row that fits. Events alone outrank a store that is written beside them [CTL-26]."""
    adapter = find_adapter(backend)
    if adapter is None:
        return Path.UNMANAGED
    if backend.mode == EVENTS_ONLY:
        return Path.EVENTS_ONLY
    if backend.remote_storage is None:
        return Path.HOST_ONLY
    if PROTOCOLS.get(text(backend.remote_storage, "provider")) not in adapter.protocols:
        return Path.UNMANAGED
    ownerships = {EXTERNAL: Path.EXTERNAL, MANAGED: Path.MANAGED}
    return ownerships.get(text(backend.remote_storage, "ownership"), Path.UNMANAGED)
