"""What a CacheBackend gets before it is stored, besides the schema's own defaults [ADM-17..20]."""

from __future__ import annotations

from typing import Any

from inferencecache.controller.admission.reviews import Document
from inferencecache.core.kube.backends import DEFAULT_FIRST_EVENT_TIMEOUT


def defaulted_backend(document: Document) -> Document:
    """The object with `integration`, which the schema then fills, and with the first event's timeout.

    Whatever stands there stays, zero values and values of a wrong type included.
    """
    spec = _made(document, "spec")
    if not isinstance(spec, dict):
        return document
    observation = _made(spec, "observation")
    if isinstance(observation, dict) and observation.get("firstEventTimeout") is None:
        observation = {**observation, "firstEventTimeout": DEFAULT_FIRST_EVENT_TIMEOUT}
    completed = {"integration": _made(spec, "integration"), "observation": observation}
    return {**document, "spec": {**spec, **completed}}


def _made(parent: Document, key: str) -> Any:
    """What stands there, an empty object where nothing does."""
    value = parent.get(key)
    return {} if value is None else value
