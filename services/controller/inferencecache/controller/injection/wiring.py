"""One pod and the one backend that owns it: the steps of wiring, in order [ADM-132].

They work on a copy. A step that cannot be done raises, and the copy is gone: a pod is wired whole or
not at all. Only the kernel check and the sidecar may be left out [ADM-133].
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from inferencecache.controller.adapters import Adapter, find_adapter
from inferencecache.controller.admission.decoding import unreadable_values
from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.overrides import override_violations
from inferencecache.controller.injection.bindings import Binding, resolve_binding
from inferencecache.controller.injection.budget import check_budget
from inferencecache.controller.injection.hi_cache import enable_hi_cache
from inferencecache.controller.injection.kernel_check import place_kernel_check, remove_kernel_check
from inferencecache.controller.injection.lmcache_client import connect_sglang, connect_vllm
from inferencecache.controller.injection.marks import stamp_injected, stamp_metrics
from inferencecache.controller.injection.node_local import add_gate
from inferencecache.controller.injection.overrides import merge_arguments, merge_environment
from inferencecache.controller.injection.pod_local import add_server
from inferencecache.controller.injection.pods import engine_of, parts
from inferencecache.controller.injection.prerequisites import check_prerequisites, check_system
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.injection.sources import source_violations
from inferencecache.controller.injection.subscriber import SidecarSettings, add_subscriber, is_attached
from inferencecache.core.kube.backends import EVENTS_ONLY, HICACHE, LMCACHE, POD_LOCAL, Backend
from inferencecache.schemas.resources import CacheBackend


class Wired(NamedTuple):
    """The pod with everything it gets; `note` says what it had to do without, if anything."""

    pod: Document
    note: str


def wire(pod: Document, backend: Backend, sidecar: SidecarSettings) -> Wired:
    """Raises `NotWiredError`. The pod that comes in is not changed."""
    if unreadable := unreadable_values(backend.document, CacheBackend):
        raise NotWiredError(f"the backend cannot be read: {unreadable[0]}")
    adapter = find_adapter(backend)
    if adapter is None:
        raise NotWiredError(
            f"there is no adapter for runtime {backend.runtime_id!r} and type {backend.type!r} with topology "
            f"{backend.topology!r}"
        )
    check_system(pod)
    if backend.topology:
        check_prerequisites(pod, backend)
    binding = resolve_binding(backend, adapter)
    draft = copy.deepcopy(pod)
    observed = backend.mode == EVENTS_ONLY
    if not observed:
        _wire_engine(draft, backend, adapter, binding, sidecar)
    unchecked = _check_kernels(draft, backend)
    unattached = add_subscriber(draft, backend, sidecar)
    if observed and unattached:
        raise NotWiredError(f"the backend only observes engines, and gets no sidecar: {unattached}")
    check_budget(draft)
    if not observed and backend.topology == POD_LOCAL:
        draft = stamp_metrics(draft)
    notes = [f"no kernel check: {unchecked}"] if unchecked else []
    notes += [f"no sidecar: {unattached}"] if unattached else []
    return Wired(stamp_injected(draft, backend), "; ".join(notes))


def _wire_engine(
    pod: Document, backend: Backend, adapter: Adapter, binding: Binding | None, sidecar: SidecarSettings
) -> None:
    engine = engine_of(pod, backend.runtime_id)
    before = copy.deepcopy(engine)
    if backend.type == HICACHE:
        enable_hi_cache(engine, backend, adapter)
    else:
        if backend.topology == POD_LOCAL:
            add_server(pod, engine, backend, binding)
        else:
            add_gate(pod, engine, backend)
        if backend.runtime_id == "vllm":
            connect_vllm(engine, backend)
        else:
            connect_sglang(engine, backend, with_metrics=is_attached(backend, sidecar))
    if backend.overrides is not None:
        _check_overrides(backend, backend.overrides)
        _override(engine, before, backend.overrides)


def _check_kernels(pod: Document, backend: Backend) -> str:
    """Why there could be no check though one may be wanted, else empty; only vLLM has one [ADM-206]."""
    if (backend.runtime_id, backend.type) != ("vllm", LMCACHE):
        return ""
    if backend.mode == EVENTS_ONLY:
        remove_kernel_check(pod)
        return ""
    try:
        place_kernel_check(pod, backend)
    except ValueError as error:
        return str(error)
    return ""


def _check_overrides(backend: Backend, overrides: Document) -> None:
    path = "spec.integration.engineOverrides.env"
    sources = (
        violation
        for position, variable in enumerate(parts(overrides, "env"))
        for violation in source_violations(variable, f"{path}[{position}]")
    )
    for violation in (*override_violations(backend, None), *sources):
        raise NotWiredError(f"the backend's {violation.path}: {violation.problem}")


def _override(engine: Document, before: Document, overrides: Document) -> None:
    args = merge_arguments(
        parts(before, "args"),
        parts(engine, "args"),
        suppress=parts(overrides, "suppressArgs"),
        add=parts(overrides, "args"),
    )
    env = merge_environment(
        parts(before, "env"),
        parts(engine, "env"),
        suppress=parts(overrides, "suppressEnv"),
        add=parts(overrides, "env"),
    )
    for key, merged in (("args", args), ("env", env)):
        if merged or key in before:
            engine[key] = merged
        else:
            engine.pop(key, None)
