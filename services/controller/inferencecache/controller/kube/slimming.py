"""What is kept of an object while it is observed: of a cluster's many pods only what somebody looks at."""

from __future__ import annotations

from typing import Any, Final

from inferencecache.core.kube.kinds import PODS, Document, ObjectKind

_OF_POD_SPEC: Final = ("nodeName",)
_OF_POD_STATUS: Final = ("phase", "conditions")
_CONTAINERS: Final = ("containers", "initContainers")


def slimmed(kind: ObjectKind, document: Document) -> Document:
    """The object without its field managers; a pod also without most of its spec and status.

    Of its containers their names stay. Whoever needs more of a pod reads it from the API.
    """
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    slim = document | {"metadata": metadata}
    if kind == PODS:
        spec, status = document.get("spec") or {}, document.get("status") or {}
        kept: dict[str, Any] = {name: spec[name] for name in _OF_POD_SPEC if name in spec}
        for name in _CONTAINERS:
            if name in spec:
                kept[name] = [{"name": each.get("name")} for each in spec[name]]
        slim["spec"] = kept
        slim["status"] = {name: status[name] for name in _OF_POD_STATUS if name in status}
    return slim
