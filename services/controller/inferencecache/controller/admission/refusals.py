"""Violations in the words of the Kubernetes API: message, reason and causes of a refusal [ADM-08, ADM-09]."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from inferencecache.controller.admission.reviews import INVALID, Cause, Denied, Document
from inferencecache.controller.admission.validation import WITHOUT_VALUE, value_at
from inferencecache.schemas.resources import GROUP, Violation

_KINDS: Final = {
    "Required": ("FieldValueRequired", "Required value"),
    "Invalid": ("FieldValueInvalid", "Invalid value"),
    "Forbidden": ("FieldValueForbidden", "Forbidden"),
    "NotSupported": ("FieldValueNotSupported", "Unsupported value"),
    "Duplicate": ("FieldValueDuplicate", "Duplicate value"),
}


def refusal(kind: str, name: str, document: Document, violations: Sequence[Violation]) -> Denied:
    """The refusal of an object for all that is wrong with it; `violations` is not empty."""
    causes = tuple(_cause(document, violation) for violation in violations)
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    return Denied(422, INVALID, f'{kind}.{GROUP} "{name}" is invalid: {listed}', causes)


def _cause(document: Document, violation: Violation) -> Cause:
    reason, text = _KINDS[violation.kind]
    if violation.kind not in WITHOUT_VALUE:
        text = f"{text}: {json.dumps(value_at(document, violation.path), ensure_ascii=False)}"
    return Cause(reason, f"{text}: {violation.problem}", violation.path)
