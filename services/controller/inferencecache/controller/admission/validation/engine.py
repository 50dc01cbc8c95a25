"""Whether an adapter can do what the backend asks of its engines [ADM-80, ADM-81, ADM-95..99]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inferencecache.controller.adapters import ADAPTERS, PROTOCOLS, Adapter
from inferencecache.controller.admission.validation.storage import STORAGE
from inferencecache.core.kube.backends import (
    EVENTS_ONLY,
    KERNEL_CHECK_ANNOTATION,
    LMCACHE,
    Backend,
    text,
)
from inferencecache.schemas.resources import Violation

_KERNEL_CHECKS: Final = ("auto", "report-only", "strict", "off")


def events_only_violations(backend: Backend) -> Iterator[Violation]:
    """Mode EventsOnly connects nothing, so there is nothing to connect to."""
    if backend.mode != EVENTS_ONLY:
        return
    if backend.type != LMCACHE:
        problem = f"mode {EVENTS_ONLY} is for type {LMCACHE}"
        yield Violation("Forbidden", "spec.integration.mode", problem)
    if backend.remote_storage is not None:
        yield Violation("Forbidden", STORAGE, f"mode {EVENTS_ONLY} connects no store; remove it")


def kernel_check_violations(backend: Backend) -> Iterator[Violation]:
    """The annotation is judged for every type and runtime."""
    chosen = text(backend.annotations, KERNEL_CHECK_ANNOTATION)
    if chosen and chosen not in _KERNEL_CHECKS:
        path = f"metadata.annotations[{KERNEL_CHECK_ANNOTATION}]"
        yield Violation("Invalid", path, f"must be {', '.join(_KERNEL_CHECKS)} or empty")


def role_violations(backend: Backend) -> Iterator[Violation]:
    """LMCache's connector always reads and writes."""
    if backend.type == LMCACHE and backend.role in ("ReadOnly", "WriteOnly"):
        problem = f"type {LMCACHE} cannot keep engines to one direction; write ReadWrite"
        yield Violation("Invalid", "spec.integration.role", problem)


def adapter_violations(backend: Backend, adapter: Adapter | None) -> Iterator[Violation]:
    """Skipped for an object without a type, which has bypassed defaulting."""
    if not text(backend.spec, "type"):
        return
    if adapter is None:
        pairs = ", ".join(sorted(map(str, ADAPTERS)))
        problem = (
            f"runtime {backend.runtime_id!r} and type {backend.type!r}, as configured, have no adapter; "
            f"supported: {pairs}"
        )
        yield Violation("Invalid", "spec.runtime", problem)
        return
    provider = text(backend.remote_storage, "provider")
    if not provider:
        return
    protocol = PROTOCOLS.get(provider)
    if protocol is None:
        yield Violation("Invalid", f"{STORAGE}.provider", f"is unknown; supported: {', '.join(PROTOCOLS)}")
    elif protocol not in adapter.protocols:
        problem = (
            f"runtime {adapter.runtime!r} with type {adapter.type!r} cannot use a store that speaks "
            f"{protocol!r}; remove {STORAGE}"
        )
        yield Violation("Invalid", f"{STORAGE}.provider", problem)
