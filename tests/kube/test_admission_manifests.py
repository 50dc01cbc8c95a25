"""The generated manifests of the webhooks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.kube import Document, KubeClient

FILE = Path(__file__).resolve().parents[2] / "deploy" / "base" / "webhooks" / "webhooks.yaml"


def manifests() -> dict[str, Document]:
    """Each document by its kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(FILE.read_text())}


@pytest.mark.rule("ADM-03")
def test_service_certificate_and_registrations_name_each_other() -> None:
    documents = manifests()
    service, certificate = documents["Service"], documents["Certificate"]
    assert service["spec"]["ports"] == [
        {"name": "webhooks", "port": 443, "protocol": "TCP", "targetPort": 9443}
    ]
    assert certificate["spec"]["secretName"] == "webhook-server-cert"
    assert certificate["spec"]["issuerRef"]["name"] == documents["Issuer"]["metadata"]["name"]
    assert documents["Issuer"]["spec"] == {"selfSigned": {}}
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert host in certificate["spec"]["dnsNames"]
    authority = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert documents[kind]["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": authority}
        for webhook in documents[kind]["webhooks"]:
            reached = webhook["clientConfig"]["service"]
            assert f"{reached['name']}.{reached['namespace']}.svc" == host


@pytest.mark.kube
@pytest.mark.rule("ADM-01", "ADM-02")
async def test_a_server_takes_them_as_they_are(kube: KubeClient, namespace: str) -> None:
    for document in manifests().values():
        if document["apiVersion"].startswith("cert-manager.io/"):
            continue  # kinds of a program that is not installed here
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = namespace
        answer = await kube.create(document, strict=True, dry_run=True)
        assert answer.status == 201, answer.body
        for webhook in answer.body.get("webhooks", ()):
            assert webhook["timeoutSeconds"] == 10
            assert webhook["namespaceSelector"] == webhook["objectSelector"] == {}
            assert webhook["matchPolicy"] == "Equivalent"
            assert webhook.get("reinvocationPolicy", "Never") == "Never"
