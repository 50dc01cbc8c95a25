"""An API server that is played in memory, for tests that set the clock and let calls fail.

It keeps what the controller relies on: versions, generations, identities, merge patches, and a status that
only its own part changes. It fills in no defaults and checks nothing: tests/kube has the real server.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from prometheus_client import CollectorRegistry

from inferencecache.controller.kube.observed import Observed
from inferencecache.controller.kube.recording import Recorder
from inferencecache.controller.kube.writing import Writer
from inferencecache.core.kube.api import KubeApi, Listing, RefusedCallError, UnansweredError
from inferencecache.core.kube.kinds import (
    CACHE_BACKENDS,
    DEPLOYMENTS,
    EVENTS,
    SERVICES,
    Document,
    ObjectKey,
    ObjectKind,
    key_of,
)

_READING = ("get", "list")
Stored = tuple[ObjectKind, ObjectKey]


class PlayedKube:
    """The server and what a reconciler works with. `calls` counts what was asked by verb and kind; what
    `fail` names fails until it is withdrawn.
    """

    def __init__(self) -> None:
        self.objects: dict[Stored, Document] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.fail: set[tuple[str, str]] = set()
        self.before_write: Callable[[], None] = lambda: None
        self._version = 0
        self.api = cast("KubeApi", self)
        self.observed = Observed((CACHE_BACKENDS, DEPLOYMENTS, SERVICES))
        for kind in self.observed.kinds:
            self.observed.all_seen(kind, Listing([], "0"))
        self.writer = Writer(self.api, CollectorRegistry())

    def recorder(self, component: str) -> Recorder:
        return Recorder(self.writer, component, "test")

    # -- what tests do -------------------------------------------------------------------------------

    def put(self, kind: ObjectKind, document: Document) -> Document:
        """An object as somebody else made or changed it; its spec makes a generation, unless it has one."""
        key = (kind, key_of(document))
        made = copy.deepcopy(document)
        metadata = made["metadata"]
        metadata.setdefault("uid", f"uid-{len(self.objects)}")
        old = self.objects.get(key)
        generation = 1 if old is None else old["metadata"]["generation"]
        changed = old is not None and old.get("spec") != made.get("spec")
        metadata.setdefault("generation", generation + changed)
        self._keep(key, made)
        return made

    def drop(self, kind: ObjectKind, name: str, namespace: str) -> None:
        gone = self.objects.pop((kind, ObjectKey(namespace, name)))
        if kind in self.observed.kinds:
            self.observed.gone(kind, gone)

    def stored(self, kind: ObjectKind, name: str, namespace: str) -> Document | None:
        return self.objects.get((kind, ObjectKey(namespace, name)))

    @property
    def writes(self) -> int:
        """Calls that change something, Events apart."""
        counted = self.calls.items()
        return sum(n for (verb, kind), n in counted if verb not in _READING and kind != "Event")

    def events(self) -> list[tuple[str, str]]:
        """Type and reason of all Events, in the order in which they were made."""
        made = (document for (kind, _), document in self.objects.items() if kind == EVENTS)
        return [(event["type"], event["reason"]) for event in made]

    # -- what the controller asks --------------------------------------------------------------------

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Document | None:
        self._called("get", kind)
        return copy.deepcopy(self.objects.get((kind, ObjectKey(namespace, name))))

    async def list_all(self, kind: ObjectKind, namespace: str = "", labels: str = "") -> Listing:
        assert not labels
        self._called("list", kind)
        found = [
            document
            for (of_kind, key), document in sorted(self.objects.items(), key=lambda item: item[0][1])
            if of_kind == kind and namespace in ("", key.namespace)
        ]
        return Listing(copy.deepcopy(found), str(self._version))

    async def create(self, kind: ObjectKind, document: Document) -> Document:
        self._called("create", kind)
        key = (kind, key_of(document))
        if key in self.objects:
            raise _refused(HTTPStatus.CONFLICT, "AlreadyExists")
        return copy.deepcopy(self.put(kind, document))

    async def replace(self, kind: ObjectKind, document: Document) -> Document:
        self._called("replace", kind)
        old = self._existing(kind, key_of(document))
        if old["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            raise _refused(HTTPStatus.CONFLICT, "Conflict")
        new = copy.deepcopy(document)
        new["metadata"]["generation"] += old["spec"] != new["spec"]
        self._keep((kind, key_of(document)), new)
        return copy.deepcopy(new)

    async def merge(
        self, kind: ObjectKind, namespace: str, name: str, patch: Document, part: str = ""
    ) -> Document:
        self._called(part or "merge", kind)
        key = ObjectKey(namespace, name)
        old = self._existing(kind, key)
        uid = patch.get("metadata", {}).get("uid", old["metadata"]["uid"])
        if uid != old["metadata"]["uid"]:
            raise _refused(HTTPStatus.CONFLICT, "Conflict")
        new = _merged(old, {part: patch[part]} if part else patch)
        new["metadata"]["generation"] += not part and old.get("spec") != new.get("spec")
        self._keep((kind, key), new)
        return copy.deepcopy(new)

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> bool:
        self._called("delete", kind)
        old = self._existing(kind, ObjectKey(namespace, name))
        if old["metadata"]["uid"] != uid:
            return False
        self.drop(kind, name, namespace)
        return True

    def _called(self, verb: str, kind: ObjectKind) -> None:
        self.calls[verb, kind.name] += 1
        if verb not in _READING:
            self.before_write()
        if (verb, kind.name) in self.fail:
            raise UnansweredError(f"{verb} {kind.name}: played to fail")

    def _existing(self, kind: ObjectKind, key: ObjectKey) -> Document:
        if (kind, key) not in self.objects:
            raise _refused(HTTPStatus.NOT_FOUND, "NotFound")
        return self.objects[kind, key]

    def _keep(self, key: Stored, document: Document) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = document
        if key[0] in self.observed.kinds:
            self.observed.seen(key[0], copy.deepcopy(document))


def _refused(status: HTTPStatus, reason: str) -> RefusedCallError:
    return RefusedCallError("call", status, reason, "played")


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
