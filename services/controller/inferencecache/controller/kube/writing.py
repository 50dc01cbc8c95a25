"""Writing objects, and only what differs: an unchanged one costs a comparison and no call [CTL-19, CTL-43].

Every write that was carried out is counted, so that one can see that an idle controller writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry

from inferencecache.core.kube.api import KubeApi, KubeError, RefusedCallError
from inferencecache.core.kube.kinds import (
    Document,
    ObjectKey,
    ObjectKind,
    is_controlled_by,
    key_of,
    uid_of,
)
from inferencecache.core.service import CounterMeasure

WRITES: Final = CounterMeasure(
    "inferencecache_controller_writes",
    "Writes to the API server that were carried out.",
    "that they changed anything: the API server may find an object as it should be",
    ("kind", "verb"),
)

_ATTEMPTS: Final = 5
Build = Callable[[Document | None], Document]
"""From the object as it is, None when there is none, to the object as it should be. May raise."""


class ContendedError(KubeError):
    """Somebody else keeps changing the object."""


class NotLeadingError(KubeError):
    """Another process may lead by now."""


class Writer:
    """All that the controller writes to the API server goes through here, but its lease."""

    def __init__(
        self, api: KubeApi, registry: CollectorRegistry, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        """While `may_write` is false every write raises `NotLeadingError`."""
        self._api = api
        self._may_write = may_write
        self._writes = WRITES.register(registry)

    async def apply(
        self, kind: ObjectKind, key: ObjectKey, build: Build, known: Document | None = None
    ) -> Document:
        """Make the object what `build` makes of it; the object as stored. Raises `KubeError`.

        `known` is the object as it was a moment ago and spares a call. `build` gets fresh data again when
        the object was changed meanwhile, and must not change what it gets.
        """
        for attempt in range(_ATTEMPTS):
            live = known if known is not None and attempt == 0 else await self._api.get(kind, *key)
            wanted = build(live)
            if live is not None and wanted == live:
                return live
            try:
                if live is None:
                    return self._counted("create", kind, await self._checked().create(kind, wanted))
                return self._counted("update", kind, await self._checked().replace(kind, wanted))
            except RefusedCallError as error:
                if not error.is_conflict and not (live is not None and error.is_missing):
                    raise
        raise ContendedError(f"{kind.name} {key} is changed by others all the time")

    async def create(self, kind: ObjectKind, document: Document) -> Document:
        """Store a new object. Raises `KubeError`, a conflict when the name is taken."""
        return self._counted("create", kind, await self._checked().create(kind, document))

    async def merge(self, kind: ObjectKind, key: ObjectKey, patch: Document) -> Document:
        """Merge a patch into the object of that key, whatever it holds. Raises `KubeError`."""
        return self._counted("patch", kind, await self._checked().merge(kind, *key, patch))

    async def annotate(
        self, kind: ObjectKind, document: Document, annotations: Mapping[str, str | None]
    ) -> None:
        """Set annotations of the object that the document is of, and remove those that are None."""
        key, old = key_of(document), document["metadata"].get("annotations") or {}
        changed = {name: value for name, value in annotations.items() if old.get(name) != value}
        if changed:
            patch = {"metadata": {"uid": uid_of(document), "annotations": changed}}
            await self.merge(kind, key, patch)

    async def delete(self, kind: ObjectKind, document: Document) -> bool:
        """Delete the object that the document is of; false when it is gone. Raises `KubeError`."""
        done = await self._checked().delete(kind, *key_of(document), uid_of(document))
        if done:
            self._writes.labels(kind.name, "delete").inc()
        return done

    async def delete_owned(self, kind: ObjectKind, key: ObjectKey, owner_uid: str) -> bool:
        """Delete the object of that key if the owner controls it; leave every other alone [CTL-51]."""
        live = await self._api.get(kind, *key)
        if live is None or not is_controlled_by(live, owner_uid):
            return False
        return await self.delete(kind, live)

    async def set_status(self, kind: ObjectKind, document: Document, fields: Mapping[str, Any]) -> bool:
        """Set fields of the status of the object that the document is of; None removes one.

        Fields that are not named stay as they are. False when nothing differed, and nothing was written.
        Raises `KubeError`, a conflict when the object is another one by now.
        """
        key, uid = key_of(document), uid_of(document)
        for _ in range(_ATTEMPTS):
            old = document.get("status") or {}
            changed = {name: value for name, value in fields.items() if old.get(name) != value}
            if not changed:
                return False
            version = {"resourceVersion": document["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "status": merge_patch(old, changed)}
            try:
                self._counted("status", kind, await self._checked().merge(kind, *key, patch, "status"))
            except RefusedCallError as error:
                # The server looks at no uid here, so that of the object which was changed is looked at.
                live = await self._api.get(kind, *key) if error.is_conflict else None
                if live is None or uid_of(live) != uid:
                    raise
                document = live
            else:
                return True
        raise ContendedError(f"the status of {kind.name} {key} is changed by others all the time")

    def _checked(self) -> KubeApi:
        if not self._may_write():
            raise NotLeadingError("nothing is written, since another process may lead by now")
        return self._api

    def _counted(self, verb: str, kind: ObjectKind, stored: Document) -> Document:
        self._writes.labels(kind.name, verb).inc()
        return stored


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Document:
    """What has to be merged into `old` so that each field of `new` is exactly that [RFC 7386]."""
    patch: Document = {}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            removed = {key: None for key in before if key not in value}
            patch[name] = removed | merge_patch(before, value)
        else:
            patch[name] = value
    return patch
