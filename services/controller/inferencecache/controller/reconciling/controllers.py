"""The seam between the running controller and what it reconciles."""

from __future__ import annotations

from typing import Protocol

from inferencecache.controller.kube.observed import Change, Observed
from inferencecache.controller.kube.recording import Recorder
from inferencecache.controller.kube.writing import Writer
from inferencecache.core.kube.api import KubeApi
from inferencecache.core.kube.kinds import ObjectKey


class Means(Protocol):
    """What a controller gets to work with."""

    api: KubeApi
    observed: Observed
    writer: Writer

    def recorder(self, component: str) -> Recorder:
        """Records Events in the name of that component."""
        ...


class Reconciler(Protocol):
    """One kind of work by object, each with a queue of its own that runs only on the leader.

    `concerns` says which keys a change makes it look at again; at the start and at every resync it hears
    of each object that is there as a change from nothing or from itself.
    """

    name: str

    def concerns(self, change: Change) -> tuple[ObjectKey, ...]:
        """Keys to look at again."""
        ...

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Look at one; seconds until it wants to be looked at again. Raises `KubeError`, `RetryError`."""
        ...
