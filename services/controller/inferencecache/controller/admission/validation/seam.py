"""Updates are refused for what they introduce only [ADM-11]."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.schemas.resources import Violation

_STEP: Final = re.compile(r"\[(?P<key>.*?)\](?=[.\[]|$)|(?P<name>[^.\[]+)")
WITHOUT_VALUE: Final = frozenset({"Required", "Forbidden"})


def value_at(document: Document, path: str) -> Any:
    """What stands at a violation's path; None where nothing does."""
    value: Any = document
    for step in _STEP.finditer(path):
        key = step["name"] or step["key"]
        if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(key)
        else:
            return None
    return value


def introduced(
    new: Document, found: Iterable[Violation], old: Document, found_before: Iterable[Violation]
) -> list[Violation]:
    """Violations of `new` that `old` does not have with the same kind, path, bad value and detail."""
    before = {violation: _bad_value(old, violation) for violation in found_before}
    return [
        violation
        for violation in found
        if violation not in before or before[violation] != _bad_value(new, violation)
    ]


def _bad_value(document: Document, violation: Violation) -> Any:
    return None if violation.kind in WITHOUT_VALUE else value_at(document, violation.path)
