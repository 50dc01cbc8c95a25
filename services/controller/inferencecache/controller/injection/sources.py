"""Sources of variables, as the API server judges them in a pod [ADM-250].

A variable of `engineOverrides` has a name and one source when the backend is admitted. What else is wrong
with the source the API says only of the pod, which it would keep out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.admission.validation.resources import is_qualified_name
from inferencecache.controller.admission.validation.storage import secret_key_violations
from inferencecache.core.kube.backends import section, text
from inferencecache.schemas.resources import Violation

_FIELDS: Final = frozenset(
    {
        *("metadata.name", "metadata.namespace", "metadata.uid"),
        *("spec.nodeName", "spec.serviceAccountName"),
        *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
    }
)
_KEYED_FIELD: Final = re.compile(r"metadata\.(?:labels|annotations)\['(?P<key>[^']*)'\]")
_RESOURCE: Final = re.compile(r"(?:limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.*)")
_UNIT: Final = re.compile(r"[01]|1[kMGTPE]|1[KMGTPE]i")
_UNIT_OF_CPU: Final = ("0", "1", "1m")


def source_violations(variable: Document, path: str) -> Iterator[Violation]:
    """What the API would refuse; `path` is that of the variable."""
    source = section(variable, "valueFrom") or {}
    for kind in ("secretKeyRef", "configMapKeyRef"):
        if (reference := section(source, kind)) is not None:
            yield from secret_key_violations(reference, f"{path}.valueFrom.{kind}")
    if (reference := section(source, "fieldRef")) is not None and not _is_field(reference):
        yield Violation(
            "Invalid", f"{path}.valueFrom.fieldRef", "is no field of a pod that variables can have"
        )
    if (reference := section(source, "resourceFieldRef")) is not None and not _is_resource(reference):
        problem = "is no resource of a container with a unit such as 1, 1m or 1Mi"
        yield Violation("Invalid", f"{path}.valueFrom.resourceFieldRef", problem)


def _is_field(reference: Document) -> bool:
    field = text(reference, "fieldPath")
    keyed = _KEYED_FIELD.fullmatch(field)
    known = is_qualified_name(keyed["key"]) if keyed else field in _FIELDS
    return known and text(reference, "apiVersion") in ("", "v1")


def _is_resource(reference: Document) -> bool:
    resource = _RESOURCE.fullmatch(text(reference, "resource"))
    unit = str(reference.get("divisor", "0"))
    if resource is None:
        return False
    return unit in _UNIT_OF_CPU if resource[1] == "cpu" else _UNIT.fullmatch(unit) is not None
