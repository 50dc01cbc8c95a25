"""What becomes of one CacheBackend: from objects as they are to objects, status and Events as they should be.

A pass reads the backend and what belongs to it, chooses a path by the spec, applies the objects of that path,
and judges: each file here holds one judgement, a pure function of documents and of the time it is told. The
reconciler carries a pass out; nothing is remembered between passes but when a self-test last was answered.
"""

from __future__ import annotations

from inferencecache.controller.backend.probe import Prober
from inferencecache.controller.backend.reconciler import BackendReconciler

__all__ = ["BackendReconciler", "Prober"]
