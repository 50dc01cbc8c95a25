"""A status that is a function of its object and of what is known besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inferencecache.controller.reconciling.controllers import Means
from inferencecache.core.kube.kinds import Document, ObjectKey, ObjectKind

Fields = Mapping[str, Any]


async def settle_status(
    means: Means, kind: ObjectKind, key: ObjectKey, fields_of: Callable[[Document], Fields]
) -> bool:
    """Give the object the fields that `fields_of` makes of it; was anything written?

    What was observed a moment ago tells whether there is anything to do; what is written is judged by what
    is stored now. Raises `KubeError`.
    """
    observed = means.observed.get(kind, key)
    if observed is None or _agree(observed, fields_of(observed)):
        return False
    document = await means.api.get(kind, *key)
    return document is not None and await means.writer.set_status(kind, document, fields_of(document))


def _agree(document: Document, fields: Fields) -> bool:
    status = document.get("status") or {}
    return all(status.get(name) == value for name, value in fields.items())
