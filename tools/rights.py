"""Makes the manifests of the controller's rights and of the roles for people."""

from __future__ import annotations

from inferencecache.controller.rights import rights_of_controller, roles_for_people
from tools.manifests import manifest

_SOURCE = "services/controller/inferencecache/controller/rights.py"
_LABELS = {"app.kubernetes.io/name": "inference-cache", "app.kubernetes.io/component": "controller"}


def rights_manifests() -> dict[str, str]:
    """One file: what has to be applied before the controller."""
    documents = [*rights_of_controller(), *roles_for_people()]
    for document in documents:
        document["metadata"]["labels"] = dict(_LABELS)
    return {"rbac.yaml": manifest(documents, source=_SOURCE)}
