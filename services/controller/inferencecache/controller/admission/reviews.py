"""One admission review: the request as it came, and the two answers there are.

Objects stay JSON documents: what is stored may be older or stranger than any struct, and an answer
must change nothing of an object but what it means to change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

Document = dict[str, Any]
"""A JSON object of the API. Nobody changes one in place: what comes in may be needed as it was."""

Lookup = Callable[[str, str], Awaitable[list[Document]]]
"""`await lookup(plural, namespace)`: our resources of that name there, read live from the API, as stored
[ADM-06]. Raises `LookupFailedError`.
"""


class LookupFailedError(Exception):
    """Objects that a decision needs cannot be read. The text is for whoever sent the request."""

    def __init__(self, plural: str, namespace: str, reason: str) -> None:
        super().__init__(f"cannot list {plural} in namespace {namespace}: {reason}")
        self.plural = plural
        self.namespace = namespace
        self.reason = reason


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API server asks; fields that no webhook here needs are not kept.

    `object` is the object as it would be stored (absent at DELETE), `old_object` as it is (UPDATE only).
    """

    uid: str
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    name: str = ""
    namespace: str = ""
    object: Document | None = None
    old_object: Document | None = None

    @property
    def object_name(self) -> str:
        """The object's name, also where the server made it; empty before it did."""
        metadata = (self.object or {}).get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return name if isinstance(name, str) and name else self.name


class Allowed(NamedTuple):
    """`changed` is the object as it should be stored, None for as it is; `message` says why nothing was
    done where something could have been [ADM-256].
    """

    changed: Document | None = None
    message: str = ""


class Cause(NamedTuple):
    """One violation within a refusal, as `details.causes` of a Kubernetes status carries it."""

    reason: str
    message: str
    field: str


class Denied(NamedTuple):
    """A refusal. `reason` is the API's word for `code`; `causes` only come with code 422."""

    code: int
    reason: str
    message: str
    causes: tuple[Cause, ...] = ()


Answer = Allowed | Denied
Webhook = Callable[[AdmissionRequest, Lookup], Awaitable[Answer]]

FORBIDDEN: Final = "Forbidden"
BAD_REQUEST: Final = "BadRequest"
INVALID: Final = "Invalid"


def forbidden(message: str) -> Denied:
    """A plain refusal without causes [ADM-12, ADM-130]."""
    return Denied(403, FORBIDDEN, message)


def unreadable(message: str) -> Denied:
    """The object cannot be read at all [ADM-13]."""
    return Denied(400, BAD_REQUEST, message)
