"""Which backend a pod belongs to [ADM-128]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document


def matching_backends(documents: Sequence[Document], labels: Mapping[str, str]) -> list[Backend]:
    """Backends all of whose selector's entries are labels of the pod, by name; those being deleted too.

    Only the selector is looked at, so that a backend that is unreadable elsewhere still owns its pods.
    """
    backends = [Backend(document) for document in documents]
    matching = [backend for backend in backends if matches(backend.match_labels, labels)]
    return sorted(matching, key=lambda backend: backend.name)


def matches(selector: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    """Whether labels have every entry of a selector; an empty one selects nothing [CRD-100]."""
    return bool(selector) and all(key in labels and labels[key] == value for key, value in selector.items())
