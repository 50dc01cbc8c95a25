"""Events: what happened to an object, for `kubectl describe`.

An Event's name is made of its object and what it says, so that the same thing said again, also by a
later process, is counted in the one that is there instead of beside it [CTL-213].
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from inferencecache.controller.kube.writing import Writer
from inferencecache.core.kube.api import KubeError, RefusedCallError
from inferencecache.core.kube.kinds import EVENTS, Document, ObjectKey, key_of, uid_of
from inferencecache.core.service import get_logger

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_LONGEST_NOTE: Final = 1024
"""Bytes."""
_LONGEST_NAME: Final = 253
_KEPT: Final = 10_000

logger = get_logger("events")


class Note(NamedTuple):
    """What an Event says; the action is the reason."""

    type: str
    reason: str
    message: str


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class Recorder:
    """Records Events as one reporting component. A failure is logged; nothing waits for an Event."""

    def __init__(
        self, writer: Writer, component: str, instance: str, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._writer = writer
        self._component = component
        self._instance = instance
        self._clock = clock
        self._counts: OrderedDict[ObjectKey, int] = OrderedDict()

    async def record(self, regarding: Document, note: Note, related: Document | None = None) -> bool:
        """Record it about an object; false when it could not be."""
        event = self._event(regarding, note, related)
        key = key_of(event)
        try:
            if key in self._counts:
                try:
                    await self._again(key, self._counts[key] + 1)
                except RefusedCallError as error:
                    if not error.is_missing:
                        raise
                    await self._writer.create(EVENTS, event)  # the server forgets Events after a while
                    self._counted(key, 1)
                return True
            try:
                await self._writer.create(EVENTS, event)
                self._counted(key, 1)
            except RefusedCallError as error:
                if not error.is_conflict:
                    raise
                await self._again(key, 2)
        except KubeError as error:
            logger.warning("event_not_recorded", reason=note.reason, object=str(key), error=str(error))
            return False
        return True

    async def _again(self, key: ObjectKey, count: int) -> None:
        series = {"count": count, "lastObservedTime": _precise(self._clock())}
        await self._writer.merge(EVENTS, key, {"series": series})
        self._counted(key, count)

    def _counted(self, key: ObjectKey, count: int) -> None:
        self._counts[key] = count
        self._counts.move_to_end(key)
        if len(self._counts) > _KEPT:
            self._counts.popitem(last=False)

    def _event(self, regarding: Document, note: Note, related: Document | None) -> Document:
        said = "\0".join((uid_of(regarding), self._component, *note))
        name = regarding["metadata"]["name"]
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        namespace = regarding["metadata"].get("namespace") or "default"
        event: Document = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.name,
            "metadata": {
                "name": f"{name[: _LONGEST_NAME - 17].rstrip('-.')}.{digest}",
                "namespace": namespace,
            },
            "eventTime": _precise(self._clock()),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "action": note.reason,
            "reason": note.reason,
            "regarding": reference_to(regarding),
            "note": note.message.encode()[:_LONGEST_NOTE].decode(errors="ignore"),
            "type": note.type,
        }
        return event if related is None else event | {"related": reference_to(related)}


def reference_to(document: Document) -> Document:
    """What refers to the object that the document is of."""
    metadata = document["metadata"]
    reference = {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid") or "",
    }
    namespace = metadata.get("namespace")
    return reference | ({"namespace": namespace} if namespace else {})


def _precise(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
