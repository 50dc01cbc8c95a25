"""The default overlay in a cluster of its own, as a person installs it and as clients meet it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import aiohttp
import grpc.aio
import nats
import yaml

from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.cluster.node import NODE, OneNode
from tests.support.fleet.asking import matched_by
from tests.support.kube import ROOT, Document
from tests.support.kubectl import Kubectl
from tests.support.waiting import eventually
from tools import cluster, docker, images

SYSTEM: Final = "inference-cache-system"
SERVING: Final = "serving"
"""The namespace of the samples."""
MODEL: Final = "acme/hybrid-80b"
"""That of the sample of engines that only report."""
PREFIX: Final = "inference-cache-test/"
VERSION: Final = "0.1.0"
ENGINE_IMAGE: Final = f"{PREFIX}engine:{VERSION}"
OURS: Final = ("server", "indexer", "controller", "subscriber", "simengine")
BLOCK: Final = 16
WITHIN_S: Final = 120.0
"""How long anything may take that nobody promised to be fast, on a slow machine."""
_DEPLOY_GUIDE: Final = ROOT / "docs" / "deploy.md"
_OVERLAY: Final = re.compile(r"```yaml\n# kustomization\.yaml\n(.*?)```", re.DOTALL)
_FIRST_STREAM: Final = "IC_EVENTS_1_0"
_CALL_LIMIT_S: Final = 30.0
_CLI_LIMIT_S: Final = 120.0


class Ran(NamedTuple):
    """How a program of ours ended and what it said."""

    code: int
    told: str
    complaint: str


class Pod(NamedTuple):
    name: str
    address: str


def prompt(seed: int) -> list[int]:
    """Eight blocks that no other prompt shares."""
    return Random(seed).choices(range(1, 30_000), k=8 * BLOCK)


def built() -> dict[str, str]:
    """Build the images of the tree as it is; what `docker` runs with."""
    environment = docker.environment() | {"IMAGE_PREFIX": PREFIX, "IMAGE_TAG": VERSION}
    images.build(OURS, environment=environment)
    base = images.tag("simengine", environment)
    command = ("docker", "build", "--quiet", f"--build-arg=BASE={base}", f"--tag={ENGINE_IMAGE}")
    folder = Path(__file__).with_name("image")
    subprocess.run((*command, str(folder)), check=True, env=environment, stdout=subprocess.DEVNULL)
    return environment


def foreign_kind(group: str, kind: str, *, namespaced: bool = True) -> Document:
    """A definition that takes anything for an object of another project's kind."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


CERT_MANAGER: Final = (
    foreign_kind("cert-manager.io", "Certificate"),
    foreign_kind("cert-manager.io", "CertificateRequest"),
    foreign_kind("cert-manager.io", "Issuer"),
    foreign_kind("cert-manager.io", "ClusterIssuer", namespaced=False),
    foreign_kind("acme.cert-manager.io", "Order"),
    foreign_kind("acme.cert-manager.io", "Challenge"),
)
PROMETHEUS_OPERATOR: Final = tuple(
    foreign_kind("monitoring.coreos.com", kind) for kind in ("PodMonitor", "PrometheusRule", "ServiceMonitor")
)


class Installation:
    """What an operator does and what clients see. Names without a namespace are of the installation's own."""

    def __init__(self, node: OneNode) -> None:
        self.node = node
        self.kubectl = Kubectl(node, SYSTEM)
        self.serving = Kubectl(node, SERVING)
        self.overlay = node.folder / "overlay"
        self._volumes = 0

    # -- installing ----------------------------------------------------------------------------------

    async def prepare(self, environment: Mapping[str, str]) -> None:
        """What an installation presupposes: images, cert-manager, a volume."""
        names = [images.tag(name, environment) for name in OURS if name != "simengine"]
        self.node.import_images([*names, ENGINE_IMAGE, docker.NATS_IMAGE], environment)
        self.node.import_archive(cluster.archive(cluster.REDIS_IMAGE))
        kinds = (*CERT_MANAGER, *PROMETHEUS_OPERATOR)
        await self.kubectl.apply(*kinds)
        for kind in kinds:
            await self.kubectl.wait(f"crd/{kind['metadata']['name']}", "condition=Established")
        self.node.start_cert_manager()
        await self.add_volume()
        self.write_overlay()

    def write_overlay(self) -> None:
        """The overlay that the deployment guide shows, with the names of the test's images."""
        found = _OVERLAY.search(_DEPLOY_GUIDE.read_text())
        assert found is not None
        self.overlay.mkdir()
        shown = found[1].replace("registry.example.org/team/", f"docker.io/{PREFIX}")
        document = yaml.safe_load(
            shown.replace("<this repository>", os.path.relpath(ROOT, self.overlay.resolve()))
        )
        name, _, version = docker.NATS_IMAGE.partition(":")
        document["images"].append({"name": "nats", "newName": f"docker.io/{name}", "newTag": version})
        (self.overlay / "kustomization.yaml").write_text(yaml.safe_dump(document))

    async def add_volume(self) -> None:
        """One that a claim of the NATS server finds; an earlier one stays as it is."""
        self._volumes += 1
        name = f"volume-{self._volumes}"
        folder = self.node.folder / "volumes" / name
        folder.mkdir(parents=True)
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        await self.kubectl.apply(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        )

    async def apply(self) -> None:
        """`kubectl apply -k`"""
        await self.kubectl("apply", "-k", str(self.overlay))

    async def available(self) -> None:
        """Wait until all workloads are as they should be."""
        for workload in (
            "statefulset/inference-cache-nats",
            "statefulset/inference-cache-indexer",
            "deployment/inference-cache-server",
            "deployment/inference-cache-controller-manager",
        ):
            await self.rolled_out(self.kubectl, workload)

    async def rolled_out(self, kubectl: Kubectl, workload: str) -> None:
        """`kubectl rollout status`"""
        try:
            await kubectl("rollout", "status", workload, f"--timeout={WITHIN_S:.0f}s", limit_s=2 * WITHIN_S)
        except BaseException as error:
            error.add_note(await kubectl("get", "pods,pvc", "--output=wide"))
            error.add_note(await kubectl("describe", "pods"))
            error.add_note(self.node.logs())
            raise

    # -- looking -------------------------------------------------------------------------------------

    async def pods(self, labels: str, kubectl: Kubectl | None = None) -> list[Pod]:
        """Those that are ready and not about to go, by name."""
        told = await (kubectl or self.kubectl)("get", "pods", f"--selector={labels}", "--output=json")
        return sorted(
            Pod(pod["metadata"]["name"], pod["status"]["podIP"])
            for pod in json.loads(told)["items"]
            if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)
        )

    async def routers(self) -> list[Pod]:
        return await self.pods("app.kubernetes.io/component=server")

    async def engines(self, domain: str = "hybrid-routing") -> list[Pod]:
        return await self.pods(f"inferencecache.io/cache-domain={domain}", self.serving)

    async def address(self, service: str) -> str:
        """The cluster's address of a Service."""
        return await self.kubectl.value(f"service/{service}", ".spec.clusterIP")

    async def password(self, user: str) -> str:
        """Of a NATS user, as the deployment guide reads it."""
        told = await self.kubectl.value("secret/inference-cache-nats-users", f".data.{user}")
        return base64.b64decode(told).decode()

    def audited(self, verb: str, resource: str, name: str) -> list[float]:
        """When the API server had carried such requests out, in seconds of Unix time."""
        wanted = {"resource": resource, "name": name}
        times = []
        for line in self.node.audit_log.read_text().splitlines():
            event = json.loads(line)
            done = event["stage"] == "ResponseComplete" and event["responseStatus"]["code"] < 300
            if done and event["verb"] == verb and event["objectRef"].items() >= wanted.items():
                times.append(datetime.fromisoformat(event["stageTimestamp"]).timestamp())
        return times

    # -- using ---------------------------------------------------------------------------------------

    async def complete(self, engine: Pod, tokens: Sequence[int], model: str = MODEL) -> None:
        """Have an engine serve a prompt, after which it holds it."""
        limit = aiohttp.ClientTimeout(total=_CALL_LIMIT_S)
        body = {"model": model, "prompt": list(tokens), "max_tokens": 1}
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(f"http://{engine.address}:8000/v1/completions", json=body) as answer,
        ):
            assert answer.status == 200, await answer.text()

    async def page(self, url: str) -> tuple[int, str]:
        """Status and body of a GET."""
        limit = aiohttp.ClientTimeout(total=_CALL_LIMIT_S)
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def lookup(
        self, address: str, tokens: Sequence[int], *, model: str = MODEL, tenant: str = SERVING
    ) -> pb.LookupRouteResponse:
        """As a gateway asks a router, or the Service of all."""
        async with grpc.aio.insecure_channel(f"{address}:9090") as channel:
            request = pb.LookupRouteRequest(
                model_id=model, tenant_id=tenant, hash_scheme="vllm", token_ids=tokens
            )
            return await InferenceCacheStub(channel).LookupRoute(request, timeout=_CALL_LIMIT_S)

    async def holders(self, address: str, tokens: Sequence[int], model: str = MODEL) -> dict[str, int]:
        """Matched tokens by replica, as a router says; none while it does not answer."""
        try:
            return matched_by(await self.lookup(address, tokens, model=model))
        except grpc.aio.AioRpcError:
            return {}

    async def hinted(self, tokens: Sequence[int], *engines: str, model: str = MODEL) -> None:
        """Wait until every router says that exactly these engines hold all of the prompt."""
        expected = dict.fromkeys(engines, len(tokens))
        seen: dict[str, dict[str, int]] = {}

        async def are_hinted() -> bool:
            seen.clear()
            for router in await self.routers():
                seen[router.name] = await self.holders(router.address, tokens, model)
            return bool(seen) and all(found == expected for found in seen.values())

        try:
            await eventually(are_hinted, within_s=WITHIN_S, what=f"hints to {sorted(engines)}")
        except AssertionError as error:
            error.add_note(f"they said {seen}")
            raise

    async def run(self, *arguments: str, **environment: str) -> Ran:
        """`inferencecache …`, with the kubeconfig of the cluster's administrator."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "inferencecache.cli", *arguments),
            stdout=pipe,
            stderr=pipe,
            env=os.environ | {"KUBECONFIG": str(self.node.kubeconfig)} | environment,
        )
        async with asyncio.timeout(_CLI_LIMIT_S):
            told, complaint = await process.communicate()
        return Ran(process.returncode or 0, told.decode(), complaint.decode())

    @asynccontextmanager
    async def forwarded(self, service: str, port: int) -> AsyncIterator[str]:
        """`kubectl port-forward` meanwhile; yields the address here, whose port the system chooses."""
        process = await asyncio.create_subprocess_exec(
            *self.kubectl.command,
            *("port-forward", f"service/{service}", f":{port}"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_CALL_LIMIT_S):
                told = (await process.stdout.readline()).decode()
            found = re.search(r"from (127\.0\.0\.1:\d+) ->", told)
            assert found is not None, told
            yield found[1]
        finally:
            process.terminate()
            await process.wait()

    async def observer(self) -> dict[str, str]:
        """Settings of a command that looks at the log."""
        return {
            "INFERENCECACHE_NATS_URL": f"nats://{await self.address('inference-cache-nats')}:4222",
            "INFERENCECACHE_NATS_USER": "observer",
            "INFERENCECACHE_NATS_PASSWORD": await self.password("observer"),
        }

    async def log_created(self) -> str:
        """When the server made the first partition's stream, which is older than the server's process."""
        observer = await self.observer()
        client = await nats.connect(
            observer["INFERENCECACHE_NATS_URL"],
            user=observer["INFERENCECACHE_NATS_USER"],
            password=observer["INFERENCECACHE_NATS_PASSWORD"],
            inbox_prefix=b"_INBOX.inferencecache",
        )
        try:
            answer = await client.request(f"$JS.API.STREAM.INFO.{_FIRST_STREAM}", timeout=_CALL_LIMIT_S)
        finally:
            await client.close()
        created: str = json.loads(answer.data)["created"]
        return created

    async def kill(self, pod: str, kubectl: Kubectl | None = None) -> None:
        """Delete a pod without waiting for it to end."""
        await (kubectl or self.kubectl)("delete", "pod", pod, "--grace-period=0", "--force")


class Timed(NamedTuple):
    """An answer of a router and when it came, in seconds of Unix time."""

    at: float
    answer: pb.LookupRouteResponse


async def answers(router: Pod, tokens: Sequence[int]) -> AsyncIterator[Timed]:
    """What a router answers, over one connection, again and again."""
    async with grpc.aio.insecure_channel(f"{router.address}:9090") as channel:
        stub = InferenceCacheStub(channel)
        request = pb.LookupRouteRequest(
            model_id=MODEL, tenant_id=SERVING, hash_scheme="vllm", token_ids=tokens
        )
        while True:
            answer = await stub.LookupRoute(request, timeout=_CALL_LIMIT_S)
            yield Timed(time.time(), answer)


def engine_deployment(
    name: str,
    domain: str,
    *,
    replicas: int = 1,
    model: str = MODEL,
    arguments: Sequence[str] = (),
    namespace: str = SERVING,
) -> Document:
    """Simulated engines, labelled for a backend."""
    labels = {"app": name, "inferencecache.io/cache-domain": domain}
    engine: dict[str, Any] = {
        "name": "vllm",
        "image": f"docker.io/{ENGINE_IMAGE}",
        "args": [f"--served-model-name={model}", *arguments],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [engine]},
            },
        },
    }


def _is_ready(pod: Document) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"
