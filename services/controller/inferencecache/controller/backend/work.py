"""All work on backends."""

from __future__ import annotations

from functools import partial

from inferencecache.controller.backend.probe import Prober
from inferencecache.controller.backend.reconciler import BackendReconciler
from inferencecache.controller.kube.observed import Change
from inferencecache.controller.operating import Operating, Work
from inferencecache.controller.pods.matched_engines import count_engines
from inferencecache.controller.pods.node_servers import NodeServers
from inferencecache.core.kube.kinds import CACHE_BACKENDS


def backend_work(operating: Operating) -> Work:
    """Over the means of an operation."""
    prober = Prober(operating.log, operating.registry) if operating.settings.functional_probe else None
    if prober is not None:
        operating.observed.on_change(partial(_forget_gone, prober))
    reconciler = BackendReconciler(
        operating,
        ask=None if prober is None else prober.ask,
        keep_servers=NodeServers(operating.writer).keep,
        count_engines=count_engines,
    )
    return Work(reconcilers=(reconciler,), projections=())


def _forget_gone(prober: Prober, change: Change) -> None:
    if change.kind == CACHE_BACKENDS and change.after is None:
        prober.forget(str(change.key))
