"""The manifests as kubectl applies them: every overlay, in whole, at a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.kube import ROOT, ApiServer, Document, KubeClient, service_account_token
from tests.support.kubectl import Kubectl, KubectlError
from tests.support.nats_roles import USERS
from tools.kube import find

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]
rule = pytest.mark.rule

OVERLAYS: Final = ROOT / "deploy" / "overlays"
COMPLETE: Final = ("default", "strict", "ha", "server-tls", "gpu-validation")
"""Those that are a whole installation."""
DEFAULT: Final = str(OVERLAYS / "default")
AUTOSCALER: Final = ROOT / "deploy" / "examples" / "router-autoscaler.yaml"
NAMESPACE: Final = "inference-cache-system"
NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
FOREIGN: Final = {
    "cert-manager.io": ("Certificate", "Issuer"),
    "monitoring.coreos.com": ("PodMonitor", "PrometheusRule", "ServiceMonitor"),
}
"""Kinds of other projects that the manifests use, by group."""


def rendered(overlay: str) -> list[Document]:
    """The objects of an overlay, as kubectl would send them."""
    program = find("kubectl")
    assert program is not None
    command = (str(program), "kustomize", str(OVERLAYS / overlay))
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return list(yaml.safe_load_all(told.stdout))


def found(documents: list[Document], kind: str, name: str) -> Document:
    (document,) = (d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    return document


def workloads(documents: list[Document]) -> dict[str, Document]:
    """Pod templates by the workload's name."""
    kinds = ("Deployment", "StatefulSet")
    return {d["metadata"]["name"]: d["spec"]["template"] for d in documents if d["kind"] in kinds}


def claims(documents: list[Document]) -> list[Document]:
    """Volumes that a StatefulSet's controller adds to its pods, with something else in place of the claim."""
    return [
        {"name": claim["metadata"]["name"], "emptyDir": {}}
        for document in documents
        if document["kind"] == "StatefulSet"
        for claim in document["spec"].get("volumeClaimTemplates", ())
    ]


def foreign_kind(group: str, kind: str, version: str) -> Document:
    """A definition that takes anything for an object of another project's kind."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
            ],
        },
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("installed")) as server, server.collecting():
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(server) as client:
        yield client


@pytest.fixture
async def kubectl(server: ApiServer) -> Kubectl:
    """At a server that knows the foreign kinds."""
    kubectl = Kubectl(server, NAMESPACE)
    kinds = [foreign_kind(group, kind, "v1") for group, kinds in FOREIGN.items() for kind in kinds]
    await kubectl.apply(*kinds)
    await kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        *(f"crd/{d['metadata']['name']}" for d in kinds),
    )
    return kubectl


async def versions(kubectl: Kubectl, overlay: str) -> list[str]:
    """Every object of an overlay with the number of its last change."""
    columns = "custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion"
    told = await kubectl("get", "-k", str(OVERLAYS / overlay), "--no-headers", f"--output={columns}")
    return told.splitlines()


@rule("OPS-68", "OPS-70", "OPS-117")
async def test_overlays_take_each_others_place_and_applying_one_again_changes_nothing(
    kubectl: Kubectl,
) -> None:
    for overlay in COMPLETE:
        await kubectl("apply", "-k", str(OVERLAYS / overlay))
        applied = await versions(kubectl, overlay)
        assert len(applied) == len(rendered(overlay))
        await kubectl("apply", "-k", str(OVERLAYS / overlay))
        assert await versions(kubectl, overlay) == applied


@rule("OPS-71", "OPS-118")
async def test_the_default_is_deleted_whole(kubectl: Kubectl) -> None:
    await kubectl("apply", "-k", DEFAULT)
    await kubectl("delete", "-k", DEFAULT, "--timeout=50s")
    assert await kubectl("get", "-k", DEFAULT, "--ignore-not-found", "--output=name") == ""


@rule("OPS-56")
async def test_the_observability_overlay_is_applied_beside_an_installation(kubectl: Kubectl) -> None:
    await kubectl("apply", "-k", DEFAULT)
    await kubectl("apply", "-k", str(OVERLAYS / "observability"))
    assert len(await versions(kubectl, "observability")) == len(rendered("observability"))
    kinds = {document["kind"] for document in rendered("default")}
    assert not kinds & set(FOREIGN["monitoring.coreos.com"])


@rule("OPS-60", "OPS-61")
@pytest.mark.parametrize("overlay", COMPLETE)
async def test_every_pod_is_restricted_and_every_object_says_what_it_belongs_to(
    overlay: str, client: KubeClient
) -> None:
    documents = rendered(overlay)
    assert {d["metadata"]["labels"][NAME] for d in documents} == {"inference-cache"}
    components = {d["metadata"]["labels"][COMPONENT] for d in documents}
    assert components == {"controller", "server", "indexer", "nats"}
    namespace = f"restricted-{overlay}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = await client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    )
    assert made.status == 201
    assert found(documents, "Namespace", NAMESPACE)["metadata"]["labels"].items() >= labels.items()
    for name, template in workloads(documents).items():
        account = {"metadata": {"name": template["spec"]["serviceAccountName"], "namespace": namespace}}
        await client.create({"apiVersion": "v1", "kind": "ServiceAccount", **account})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}
        volumes = [*template["spec"].get("volumes", ()), *claims(documents)]
        spec = template["spec"] | {"volumes": volumes}
        answer = await client.create(pod | {"spec": spec}, strict=True, dry_run=True)
        assert answer.status == 201, answer.body
        for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"requests", "limits"} <= container["resources"].keys()


@rule("OPS-61", "OPS-62", "OPS-64", "OPS-66")
def test_the_default_has_the_workloads_and_services_that_clients_know() -> None:
    documents = rendered("default")
    server = found(documents, "Service", "inference-cache-server")
    ports = {port["name"]: (port["port"], port["targetPort"]) for port in server["spec"]["ports"]}
    assert ports == {"grpc": (9090, "grpc"), "http": (8080, "http")}
    for name, template in workloads(documents).items():
        (container,) = template["spec"]["containers"]
        if name == "inference-cache-nats":
            continue
        assert template["spec"]["terminationGracePeriodSeconds"] == 10
        liveness, readiness = container["livenessProbe"], container["readinessProbe"]
        assert (liveness["httpGet"]["path"], readiness["httpGet"]["path"]) == ("/healthz", "/readyz")
        assert (liveness["initialDelaySeconds"], liveness["periodSeconds"]) == (15, 20)
        assert (readiness["initialDelaySeconds"], readiness["periodSeconds"]) == (5, 10)
    manager = workloads(documents)["inference-cache-controller-manager"]["spec"]
    assert "--leader-elect" in manager["containers"][0]["args"]
    (mounted,) = manager["containers"][0]["volumeMounts"]
    assert mounted["mountPath"] == "/tmp/k8s-webhook-server/serving-certs"
    (volume,) = manager["volumes"]
    assert volume["secret"]["secretName"] == "webhook-server-cert"


@rule("OPS-31", "OPS-33")
def test_clients_reach_routers_and_only_our_own_pods_and_engines_reach_nats() -> None:
    documents = rendered("default")
    (rule_,) = found(documents, "NetworkPolicy", "inference-cache-server")["spec"]["ingress"]
    assert "from" not in rule_
    assert {port["port"] for port in rule_["ports"]} == {8080, 9090}
    to_clients, to_servers = found(documents, "NetworkPolicy", "inference-cache-nats")["spec"]["ingress"]
    assert [port["port"] for port in to_clients["ports"]] == [4222]
    own, labelled, engines = to_clients["from"]
    assert own == {"podSelector": {"matchLabels": {NAME: "inference-cache"}}}
    assert labelled["podSelector"]["matchExpressions"][0]["key"] == "inferencecache.io/cache-domain"
    assert engines["namespaceSelector"]["matchLabels"] == {"inferencecache.io/engines": "true"}
    assert [port["port"] for port in to_servers["ports"]] == [6222]
    assert to_servers["from"][0]["podSelector"]["matchLabels"][COMPONENT] == "nats"


@rule("OPS-18", "OPS-68")
def test_server_tls_gives_routers_a_certificate_for_the_services_names() -> None:
    documents = rendered("server-tls")
    certificate = found(documents, "Certificate", "inference-cache-server-serving-cert")["spec"]
    service = f"inference-cache-server.{NAMESPACE}.svc"
    assert certificate["dnsNames"] == [service, f"{service}.cluster.local"]
    assert certificate["issuerRef"]["name"] == "inference-cache-server-selfsigned-issuer"
    spec = workloads(documents)["inference-cache-server"]["spec"]
    assert spec["volumes"] == [{"name": "tls", "secret": {"secretName": certificate["secretName"]}}]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": "tls", "mountPath": "/var/run/secrets/tls", "readOnly": True}
    assert spec["containers"][0]["args"][-2:] == [
        "--tls-cert-file=/var/run/secrets/tls/tls.crt",
        "--tls-key-file=/var/run/secrets/tls/tls.key",
    ]


@rule("OPS-68")
def test_gpu_validation_narrows_the_pod_webhook_and_no_other() -> None:
    wide, narrow = (
        {
            webhook["name"]: webhook
            for document in rendered(overlay)
            for webhook in document.get("webhooks", ())
        }
        for overlay in ("default", "gpu-validation")
    )
    changed = {name for name in wide if wide[name] != narrow[name]}
    assert changed == {"mpod.inferencecache.io"}
    selector = narrow["mpod.inferencecache.io"]["namespaceSelector"]
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "inference-cache-gpu-test"}}


@rule("OPS-30")
def test_strict_lets_nobody_in_without_credentials_and_sidecars_are_given_theirs() -> None:
    (shipped,), (strict,) = (
        [
            d["data"]
            for d in rendered(overlay)
            if d["metadata"]["name"].startswith("inference-cache-nats-") and d["kind"] == "ConfigMap"
        ]
        for overlay in ("default", "strict")
    )
    assert "no_auth_user: subscriber-open" in shipped["open.conf"]
    assert "no_auth_user" not in "".join(strict.values())
    assert {name for name in shipped if shipped[name] != strict[name]} == {"open.conf", "users.conf"}
    manager = workloads(rendered("strict"))["inference-cache-controller-manager"]["spec"]["containers"][0]
    assert "--kvevent-subscriber-credentials-secret=inference-cache-nats" in manager["args"]


@rule("OPS-30")
async def test_the_nats_pod_makes_the_users_passwords_once_and_can_do_nothing_else(
    kubectl: Kubectl, client: KubeClient, server: ApiServer, tmp_path: Path
) -> None:
    await kubectl("apply", "-k", DEFAULT)
    account = workloads(rendered("default"))["inference-cache-nats"]["spec"]["serviceAccountName"]
    (tmp_path / "token").write_text(await service_account_token(client, NAMESPACE, account))
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "ca.crt").write_bytes(server.ca.read_bytes())
    script = ROOT / "deploy" / "base" / "nats" / "make_users.py"
    address = urlsplit(server.url)
    environment = os.environ | {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }

    async def run() -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script), str(tmp_path)),
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        told, _ = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
        return told.decode()

    name = "inference-cache-nats-users"
    assert await run() == f"made the Secret {name}\n"
    made = await kubectl.value(f"secret/{name}", ".data")
    passwords = {user: base64.b64decode(value) for user, value in json.loads(made).items()}
    assert passwords.keys() == {*USERS, "route"}
    assert len({*passwords.values()}) == len(passwords)
    assert all(len(password) > 40 for password in passwords.values())
    assert await run() == f"the Secret {name} is there\n"
    assert await kubectl.value(f"secret/{name}", ".data") == made
    for verb in ("get", "list", "update", "delete"):
        user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        with pytest.raises(KubectlError):
            await kubectl("auth", "can-i", verb, f"secrets/{name}", user)


@rule("OPS-63")
async def test_the_autoscaler_of_the_examples_is_valid_and_scales_the_routers(client: KubeClient) -> None:
    document = yaml.safe_load(AUTOSCALER.read_text())
    assert document["metadata"]["namespace"] == NAMESPACE
    assert document["spec"]["scaleTargetRef"]["name"] in workloads(rendered("default"))
    document["metadata"]["namespace"] = "default"
    answer = await client.create(document, strict=True, dry_run=True)
    assert answer.status == 201, answer.body
