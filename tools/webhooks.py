"""Makes the manifests of the admission webhooks: registrations, Service, and cert-manager's objects."""

from __future__ import annotations

from typing import Any

from inferencecache.controller.admission.webhooks import (
    CERTIFICATE,
    INSTALL_NAMESPACE,
    SERVICE,
    installed_registrations,
)
from tools.manifests import manifest

_SOURCE = "services/controller/inferencecache/controller/admission/webhooks.py"
_ISSUER = "selfsigned-issuer"
_SECRET = "webhook-server-cert"  # noqa: S105 - its name
_LABELS = {"app.kubernetes.io/name": "inference-cache", "app.kubernetes.io/component": "controller"}
_NAMES = (f"{SERVICE}.{INSTALL_NAMESPACE}.svc", f"{SERVICE}.{INSTALL_NAMESPACE}.svc.cluster.local")


def webhook_manifests() -> dict[str, str]:
    """One file: what the API server needs to call the controller."""
    documents = [_service(), _issuer(), _certificate(), *installed_registrations()]
    for document in documents:
        document["metadata"]["labels"] = dict(_LABELS)
    return {"webhooks.yaml": manifest(documents, source=_SOURCE)}


def _placed(api_version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": INSTALL_NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _service() -> dict[str, Any]:
    port = {"name": "webhooks", "port": 443, "protocol": "TCP", "targetPort": 9443}
    return _placed("v1", "Service", SERVICE, {"selector": dict(_LABELS), "ports": [port]})


def _issuer() -> dict[str, Any]:
    return _placed("cert-manager.io/v1", "Issuer", _ISSUER, {"selfSigned": {}})


def _certificate() -> dict[str, Any]:
    spec = {
        "dnsNames": list(_NAMES),
        "issuerRef": {"kind": "Issuer", "name": _ISSUER},
        "secretName": _SECRET,
    }
    return _placed("cert-manager.io/v1", "Certificate", CERTIFICATE, spec)
