"""The overlay that makes routers the endpoint picker of a pool: as it is applied, with its rights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from inferencecache.router.gateway.kube_endpoints import PoolEndpoints
from inferencecache.router.settings import read_settings
from tests.kube.test_gateway_endpoints import FIRST_S, make_pod, protected_kind
from tests.kube.test_overlays import found, rendered
from tests.support.endpoints import endpoint, following
from tests.support.kube import ApiServer, KubeClient, service_account_token
from tests.support.kubectl import Kubectl

pytestmark = [pytest.mark.kube, pytest.mark.timeout(120)]
NAMESPACE: Final = "engines"
NAME: Final = "inference-cache-gateway"
FOREIGN: Final = (
    ("inference.networking.k8s.io", "InferencePool"),
    ("gateway.networking.k8s.io", "HTTPRoute"),
)


def test_the_pool_names_the_picker_that_serves_it() -> None:
    documents = rendered("gateway-api")
    pool = found(documents, "InferencePool", "llama")
    service = found(documents, "Service", NAME)
    container = found(documents, "Deployment", NAME)["spec"]["template"]["spec"]["containers"][0]
    picker = pool["spec"]["endpointPickerRef"]
    assert picker["name"] == NAME
    assert picker["failureMode"] == "FailOpen"
    assert picker["port"]["number"] == service["spec"]["ports"][0]["port"]
    arguments = [each.replace("$(POD_NAMESPACE)", NAMESPACE) for each in container["args"]]
    settings = read_settings(arguments, {"INFERENCECACHE_NATS_PASSWORD": "secret"})
    assert settings.gateway.pool == f"{NAMESPACE}/{pool['metadata']['name']}"
    assert settings.gateway.tenant == NAMESPACE
    assert settings.gateway.refuses
    (mount,) = container["volumeMounts"]
    assert str(settings.models_dir) == mount["mountPath"], "tokenizers are read from where they are put"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.gateway.address is not None
    assert settings.gateway.address[1] == ports["ext-proc"]
    policy = found(documents, "NetworkPolicy", NAME)["spec"]
    assert policy["podSelector"] == found(documents, "Deployment", NAME)["spec"]["selector"]
    (rule,) = policy["ingress"]
    assert {each["port"] for each in rule["ports"]} == set(ports.values()), "the port of producers is closed"


async def test_a_picker_has_the_rights_that_it_needs(
    api_server: ApiServer, kube: KubeClient, tmp_path: Path
) -> None:
    kubectl = Kubectl(api_server, NAMESPACE)
    await kubectl.apply(*(protected_kind(group, kind) for group, kind in FOREIGN))
    await kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        *(f"crd/{kind.lower()}s.{group}" for group, kind in FOREIGN),
    )
    await kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    await kubectl.apply(*rendered("gateway-api"))
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    token = await service_account_token(kube, NAMESPACE, NAME)
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    uid = await make_pod(kube, NAMESPACE, "engine-0", "10.0.4.1", app="llama")
    async with following(PoolEndpoints(f"{NAMESPACE}/llama", kubeconfig)) as told:
        await told.are(endpoint("10.0.4.1:8000", "engine-0", uid), within_s=FIRST_S)
