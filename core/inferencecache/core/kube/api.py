"""Reading and writing objects of any kind, with errors that say what the API said.

What is read here is what is stored now; `observed` has what was stored a moment ago.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from inferencecache.core.kube.cluster import Cluster, UnreachableError
from inferencecache.core.kube.kinds import Document, ObjectKind, key_of

CALL_LIMIT_S: Final = 30.0
WATCH_GRACE_S: Final = 5.0
"""Silence after which a watch that should have ended by itself is given up."""
_PAGE: Final = 500
_OPTIONS: Final = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


class KubeError(Exception):
    """A call to the API failed."""


class UnansweredError(KubeError):
    """No answer came; whether a write took place is not known."""


class RefusedCallError(KubeError):
    """The API refused; `reason` is its word for why, such as Conflict."""

    def __init__(self, call: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{call}: the API answers {status} {reason}: {message}")
        self.status = status
        self.reason = reason

    @property
    def is_conflict(self) -> bool:
        """The object was changed meanwhile, or is another one than was meant."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def is_missing(self) -> bool:
        """There is no such object, or no such kind."""
        return self.status == HTTPStatus.NOT_FOUND


_Wanted = tuple[ObjectKind, str, str]
_T = TypeVar("_T")


class Listing(NamedTuple):
    """All objects, and the version of the whole that they are from."""

    items: list[Document]
    resource_version: str


class Change(msgspec.Struct):
    """One event of a watch: ADDED, MODIFIED or DELETED, and the object as it is or was."""

    type: str
    object: Document


class _Metadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    items: list[Document]
    metadata: _Metadata


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


class KubeApi:
    """Calls over the connections of `cluster`. All raise `KubeError`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._running: dict[_Wanted, asyncio.Future[Listing]] = {}
        self._waiting: dict[_Wanted, asyncio.Future[Listing]] = {}

    async def is_ready(self, limit_s: float) -> bool:
        """Does the server say within the limit that it serves? A refusal to tell is an answer too."""
        try:
            status, _ = await self._cluster.request("GET", "/readyz", limit_s=limit_s)
        except UnreachableError:
            return False
        return status < HTTPStatus.INTERNAL_SERVER_ERROR

    async def get(self, kind: ObjectKind, namespace: str, name: str) -> Document | None:
        """The object, None when there is none."""
        try:
            return await self._object("GET", kind.path(namespace, name))
        except RefusedCallError as error:
            if error.is_missing:
                return None
            raise

    async def list_all(self, kind: ObjectKind, namespace: str = "", labels: str = "") -> Listing:
        """All objects of a namespace, or of all, whose labels match the selector.

        One listing runs at a time; who asks meanwhile shares the next one, which begins after they
        asked. The objects must not be changed.
        """
        wanted = (kind, namespace, labels)
        waiting = self._waiting.get(wanted)
        if waiting is None:
            waiting = asyncio.ensure_future(self._list_after(wanted, self._running.get(wanted)))
            waiting.add_done_callback(_seen)
            self._waiting[wanted] = waiting
        return await asyncio.shield(waiting)

    async def list_kept(self, kind: ObjectKind, keep: Callable[[ObjectKind, Document], Document]) -> Listing:
        """All there are, of which never more than a page is in memory but as what `keep` makes of it."""
        return await self._list(kind, "", "", keep)

    async def watch(
        self, kind: ObjectKind, namespace: str, labels: str, since: str, *, lasts_s: int
    ) -> AsyncIterator[Change]:
        """What happens to objects after the version `since` of their listing, for so long at most."""
        query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(lasts_s)}
        if labels:
            query["labelSelector"] = labels
        path = kind.path(namespace)
        try:
            async for line in self._cluster.lines(path, query, silence_s=lasts_s + WATCH_GRACE_S):
                change = msgspec.json.decode(line, type=Change)
                if change.type == "ERROR":
                    raise UnansweredError(f"WATCH {path}: {change.object.get('message', 'it ended')}")
                yield change
        except (UnreachableError, msgspec.DecodeError) as error:
            raise UnansweredError(f"WATCH {path}: {error}") from error

    async def create(self, kind: ObjectKind, document: Document) -> Document:
        """Store a new object; the answer is as stored."""
        return await self._object("POST", kind.path(key_of(document).namespace), document)

    async def replace(self, kind: ObjectKind, document: Document) -> Document:
        """Replace the object whose `resourceVersion` the document has."""
        return await self._object("PUT", kind.path(*key_of(document)), document)

    async def merge(
        self, kind: ObjectKind, namespace: str, name: str, patch: Document, part: str = ""
    ) -> Document:
        """Merge a patch into an object, or into a part of it such as status."""
        return await self._object(
            "PATCH", kind.path(namespace, name, part), patch, form="application/merge-patch+json"
        )

    async def delete(self, kind: ObjectKind, namespace: str, name: str, uid: str) -> bool:
        """Delete that life of an object; false when it is gone already."""
        options = _OPTIONS | {"preconditions": {"uid": uid}}
        try:
            await self._object("DELETE", kind.path(namespace, name), options)
        except RefusedCallError as error:
            if error.is_missing or error.is_conflict:
                return False
            raise
        return True

    async def _list_after(self, wanted: _Wanted, running: asyncio.Future[Listing] | None) -> Listing:
        if running is not None:
            await asyncio.wait([running])
        self._running[wanted] = mine = self._waiting.pop(wanted)
        try:
            return await self._list(*wanted)
        finally:
            if self._running.get(wanted) is mine:
                del self._running[wanted]

    async def _list(
        self,
        kind: ObjectKind,
        namespace: str,
        labels: str,
        keep: Callable[[ObjectKind, Document], Document] | None = None,
    ) -> Listing:
        items: list[Document] = []
        query = {"limit": str(_PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._call("GET", kind.path(namespace), _Page, query=query)
            items += page.items if keep is None else [keep(kind, item) for item in page.items]
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        for item in items:  # a list tells them once for all its items
            item |= {"apiVersion": kind.api_version, "kind": kind.name}
        return Listing(items, page.metadata.resource_version)

    async def _object(self, method: str, path: str, document: Any = None, *, form: str = "") -> Document:
        return await self._call(method, path, Document, document, form=form or "application/json")

    async def _call(
        self,
        method: str,
        path: str,
        answer: type[_T],
        document: Any = None,
        *,
        form: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> _T:
        body = None if document is None else msgspec.json.encode(document)
        call = f"{method} {path}"
        try:
            status, content = await self._cluster.request(
                method, path, body, form=form, query=query, limit_s=CALL_LIMIT_S
            )
        except UnreachableError as error:
            raise UnansweredError(f"{call}: {error}") from error
        try:
            if status >= HTTPStatus.BAD_REQUEST:
                refusal = msgspec.json.decode(content, type=_Status)
                raise RefusedCallError(call, status, refusal.reason, refusal.message)
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise RefusedCallError(call, status, "Unreadable", str(error)) from error


def _seen(listing: asyncio.Future[Listing]) -> None:
    """A failure is for those who wait, of whom none may be left."""
    if not listing.cancelled():
        listing.exception()
