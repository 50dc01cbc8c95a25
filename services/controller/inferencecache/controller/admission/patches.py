"""JSON Patch (RFC 6902) from what an object was to what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inferencecache.controller.admission.reviews import Document

Operation = dict[str, Any]


def patch_between(before: Document, after: Document) -> list[Operation]:
    """Operations that turn `before` into `after`, none when they are equal; parents come before children."""
    return list(_between(before, after, ""))


def _between(before: Any, after: Any, path: str) -> Iterator[Operation]:
    match before, after:
        case dict(), dict():
            for key in (key for key in before if key not in after):
                yield {"op": "remove", "path": _below(path, key)}
            for key, value in after.items():
                if key in before:
                    yield from _between(before[key], value, _below(path, key))
                else:
                    yield {"op": "add", "path": _below(path, key), "value": value}
        case list(), list():
            for position, (old, new) in enumerate(zip(before, after, strict=False)):
                yield from _between(old, new, f"{path}/{position}")
            for position in reversed(range(len(after), len(before))):
                yield {"op": "remove", "path": f"{path}/{position}"}
            for value in after[len(before) :]:
                yield {"op": "add", "path": f"{path}/-", "value": value}
        case _ if type(before) is not type(after) or before != after:  # true and 1 are two values
            yield {"op": "replace", "path": path, "value": after}


def _below(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
