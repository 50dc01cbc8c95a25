"""What the API server held a moment ago: every object of the watched kinds, and indices over them.

It tells who has to look again and finds objects without asking; whoever decides about pods reads them
anew [CTL-18]. Objects come one by one from a watch, and all at once from a listing, which also shows
what is gone: a watch may have missed it. Versions keep an older answer from replacing a newer one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from inferencecache.controller.kube.slimming import slimmed
from inferencecache.core.kube.api import Listing
from inferencecache.core.kube.kinds import Document, ObjectKey, ObjectKind, key_of, uid_of

IndexKeys = Callable[[Document], Iterable[ObjectKey]]
"""What an object is found under in an index."""


class Change(NamedTuple):
    """One object before and after; None where there is none. `is_new` is another life of the object."""

    kind: ObjectKind
    key: ObjectKey
    before: Document | None
    after: Document | None

    @property
    def is_new(self) -> bool:
        """Was the object made, or made again?"""
        if self.after is None:
            return False
        return self.before is None or uid_of(self.before) != uid_of(self.after)

    @property
    def documents(self) -> tuple[Document, ...]:
        """Both sides, as far as they are there."""
        return tuple(document for document in (self.before, self.after) if document is not None)


class _Kept:
    """The objects of one kind."""

    def __init__(self) -> None:
        self.documents: dict[ObjectKey, Document] = {}
        self.by_namespace: defaultdict[str, dict[str, ObjectKey]] = defaultdict(dict)
        self.indices: dict[str, tuple[IndexKeys, defaultdict[ObjectKey, set[ObjectKey]]]] = {}
        self.deleted: dict[ObjectKey, int] = {}
        self.listed = asyncio.Event()


class Observed:
    """All watched objects, as `slimmed` keeps them. Documents must not be changed by who gets them."""

    def __init__(self, kinds: Iterable[ObjectKind]) -> None:
        self.kinds: Final = tuple(kinds)
        self._kept = {kind: _Kept() for kind in self.kinds}
        self._listeners: list[Callable[[Change], None]] = []

    # -- reading -----------------------------------------------------------------------------------

    def get(self, kind: ObjectKind, key: ObjectKey) -> Document | None:
        """The object of that key."""
        return self._kept[kind].documents.get(key)

    def all_of(self, kind: ObjectKind) -> list[Document]:
        """All of a kind, in order of namespace and name."""
        return [document for _, document in sorted(self._kept[kind].documents.items())]

    def in_namespace(
        self, kind: ObjectKind, namespace: str, labels: Mapping[str, object] | None = None
    ) -> list[Document]:
        """Those of a namespace that have all these labels, in order of their names."""
        kept = self._kept[kind]
        documents = (kept.documents[key] for _, key in sorted(kept.by_namespace[namespace].items()))
        return [document for document in documents if has_labels(document, labels or {})]

    def indexed(self, kind: ObjectKind, index: str, key: ObjectKey) -> list[Document]:
        """Those that an index has under a key, in order of namespace and name."""
        kept = self._kept[kind]
        return [kept.documents[each] for each in sorted(kept.indices[index][1].get(key, ()))]

    def is_listed(self, *kinds: ObjectKind) -> bool:
        """Is all of these kinds here? Without kinds: of every kind."""
        return all(self._kept[kind].listed.is_set() for kind in kinds or self.kinds)

    async def listed(self, *kinds: ObjectKind) -> None:
        """Return once all of these kinds is here."""
        for kind in kinds or self.kinds:
            await self._kept[kind].listed.wait()

    # -- following ---------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` with every change from now on, after it took place here."""
        self._listeners.append(listener)

    def index(self, kind: ObjectKind, name: str, keys: IndexKeys) -> None:
        """Keep an index, to be declared before the first object comes."""
        self._kept[kind].indices[name] = (keys, defaultdict(set))

    # -- writing -----------------------------------------------------------------------------------

    def seen(self, kind: ObjectKind, document: Document) -> None:
        """An object as a watch showed it."""
        kept, key = self._kept[kind], key_of(document)
        version = _version(document)
        before = kept.documents.get(key)
        if version <= kept.deleted.get(key, -1):
            return
        if before is None or _version(before) < version:
            self._put(kind, key, slimmed(kind, document))

    def gone(self, kind: ObjectKind, document: Document) -> None:
        """An object as it was when a watch showed its deletion."""
        kept, key = self._kept[kind], key_of(document)
        version = _version(document)
        kept.deleted[key] = max(version, kept.deleted.get(key, -1))
        before = kept.documents.get(key)
        if before is not None and _version(before) <= version:
            self._put(kind, key, None)

    def all_seen(self, kind: ObjectKind, listing: Listing) -> None:
        """All objects of a kind at one moment: those that are newer here stay, others that it lacks go."""
        kept = self._kept[kind]
        at = int(listing.resource_version or 0)
        listed = {key_of(document): document for document in listing.items}
        for document in listed.values():
            self.seen(kind, document)
        for key in [key for key, document in kept.documents.items() if _version(document) <= at]:
            if key not in listed:
                self._put(kind, key, None)
        kept.deleted = {key: version for key, version in kept.deleted.items() if version > at}
        kept.listed.set()

    def _put(self, kind: ObjectKind, key: ObjectKey, after: Document | None) -> None:
        kept = self._kept[kind]
        before = kept.documents.pop(key, None)
        if before is not None:
            kept.by_namespace[key.namespace].pop(key.name, None)
        if after is not None:
            kept.documents[key] = after
            kept.by_namespace[key.namespace][key.name] = key
        for keys, entries in kept.indices.values():
            for document, update in ((before, set.discard), (after, set.add)):
                for entry in keys(document) if document is not None else ():
                    update(entries[entry], key)
        change = Change(kind, key, before, after)
        for listener in self._listeners:
            listener(change)


def has_labels(document: Document, wanted: Mapping[str, object]) -> bool:
    """Does the object have all of these labels?"""
    labels = document["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in wanted.items())


def _version(document: Document) -> int:
    """Versions are compared as the numbers that they are in etcd-backed servers."""
    version: str = document["metadata"].get("resourceVersion") or "0"
    return int(version)
