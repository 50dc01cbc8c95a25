"""What the rules of admission say about a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from inferencecache.controller.admission.validation import judge_backend
from tests.support.backends import DOMAIN, Document, change

Found = list[tuple[str, str]]
"""Kind and path of each violation."""

SERVER: Final = "spec.lmCache.podLocal.server"
NODE_SERVER: Final = "spec.lmCache.nodeLocal.server"
DOMAIN_PATH: Final = f"spec.engineSelector.matchLabels[{DOMAIN}]"


def changed(document: Document, changes: dict[str, Any]) -> Document:
    """A copy with values set at dotted paths; None removes."""
    for path, value in changes.items():
        document = change(document, path, value)
    return document


def judged(document: Document, old: Document | None = None, siblings: Sequence[Document] = ()) -> Found:
    """Kinds and paths of the violations, in order."""
    return [(violation.kind, violation.path) for violation in judge_backend(document, old, siblings)]


def details(document: Document, siblings: Sequence[Document] = ()) -> list[str]:
    """The words of the violations, in order."""
    return [violation.problem for violation in judge_backend(document, None, siblings)]
