"""Which pods a backend's engines are, and that nobody else claims them [ADM-22..26, ADM-113, ADM-114]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from inferencecache.core.kube.backends import DOMAIN_LABEL, Backend
from inferencecache.schemas.resources import Violation

MATCH_LABELS: Final = "spec.engineSelector.matchLabels"
_DOMAIN: Final = f"{MATCH_LABELS}[{DOMAIN_LABEL}]"
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def selector_violations(backend: Backend) -> list[Violation]:
    """The first thing wrong with the selector. It is judged at every update, whatever was stored."""
    labels = backend.match_labels
    if not labels:
        return []
    if not backend.domain:
        problem = f"an engine selector names its cache domain: set the label {DOMAIN_LABEL}"
        return [Violation("Required", _DOMAIN, problem)]
    if not _LABEL_VALUE.fullmatch(backend.domain):
        problem = (
            "is no label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both "
            "ends"
        )
        return [Violation("Invalid", _DOMAIN, problem)]
    if len(labels) > 1:
        problem = f"the label {DOMAIN_LABEL} alone says which engines are meant; remove the others"
        return [Violation("Forbidden", MATCH_LABELS, problem)]
    return []


def required_selector(backend: Backend, why: str) -> Iterator[Violation]:
    """For backends that do not go without a selector [ADM-44, ADM-91]."""
    if not backend.match_labels:
        yield Violation("Required", MATCH_LABELS, f"{why}; set the label {DOMAIN_LABEL}")


def domain_violations(backend: Backend, siblings: Iterable[Backend]) -> list[Violation]:
    """What speaks against the domain beside the other backends of the namespace, itself never counted.

    Judged at every update too: two owners of one domain are never let be [ADM-114].
    """
    if not backend.domain:
        return []
    others = (other for other in siblings if other.name != backend.name)
    owners = [other.name for other in others if other.domain == backend.domain]
    if not owners:
        return []
    problem = (
        f"the cache domain {backend.domain!r} of namespace {backend.namespace} belongs to the CacheBackend "
        f"{min(owners)}; choose another domain, or delete that one"
    )
    return [Violation("Forbidden", _DOMAIN, problem)]
