"""What several checks read of documents, whatever wrote them: a value of the wrong type reads as absent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby

from inferencecache.cli.doctor.facts import KubeFacts, Listed, ReadFailed
from inferencecache.cli.doctor.findings import Check, Finding, found
from inferencecache.core.kube.backends import Backend, section, text
from inferencecache.core.kube.conditions import read_timestamp
from inferencecache.core.kube.kinds import Document, ObjectKey, key_of


def resource_of(kind: str, key: ObjectKey) -> str:
    """[OPS-91]."""
    return f"{kind.lower()}/{key.namespace}/{key.name}"


def labels_of(document: Document) -> Document:
    """The labels of an object."""
    return section(document, "metadata", "labels") or {}


def annotations_of(document: Document) -> Document:
    """The annotations of an object."""
    return section(document, "metadata", "annotations") or {}


def moment_of(document: Document | None, field: str) -> datetime | None:
    """A time that is written there."""
    try:
        written = text(document, field)
        return read_timestamp(written) if written else None
    except ValueError:
        return None


def unread(kind: str, failed: ReadFailed, check: Check) -> Finding:
    """A list that could not be read ends its check [OPS-80]."""
    return found("API001", kind, f"the list could not be read: {failed.reason}", check=check)


def in_order(documents: Iterable[Document]) -> list[Document]:
    """By namespace and name."""
    return sorted(documents, key=key_of)


def backends_by_namespace(documents: Iterable[Document]) -> Iterator[tuple[str, list[Backend]]]:
    """Backends by their namespaces, both in order."""
    backends = map(Backend, in_order(documents))
    for namespace, group in groupby(backends, key=lambda backend: backend.namespace):
        yield namespace, list(group)


def pods_of(facts: KubeFacts, namespace: str) -> Listed:
    """The pods of a namespace that was looked at."""
    return facts.pods.get(namespace, ())
