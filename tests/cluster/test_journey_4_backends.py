"""What CacheBackends bring about in a real cluster: LMCache in pods, on nodes, and Redis (13.2 to 13.4)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any, Final

import pytest

from inferencecache.controller.injection.mp_server import size_of
from tests.cluster.installation import (
    ENGINE_IMAGE,
    SERVING,
    WITHIN_S,
    Installation,
    Pod,
    engine_deployment,
    prompt,
)
from tests.cluster.node import GATEWAY, NODE
from tests.prometheus.server import Prometheus
from tests.support.backends import Document, change, events_only, hi_cache, node_local, pod_local
from tests.support.promql import expressions, selectors
from tests.support.waiting import eventually
from tools.cluster import REDIS_IMAGE
from tools.metrics_reference import MEASURES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
rule = pytest.mark.rule

READY: Final = ".status.conditions[?(@.type=='Ready')]"
PASSWORD: Final = "open-sesame"
CONTROLLER: Final = "app.kubernetes.io/component=controller"


def placed(backend: Document, name: str, model: str) -> Document:
    """A backend of the worked cases under that name, its cache domain too, in the samples' namespace."""
    made = change(backend, "metadata", {"name": name, "namespace": SERVING})
    made = change(made, "spec.observation", {"modelID": model})
    return change(made, "spec.engineSelector.matchLabels", {"inferencecache.io/cache-domain": name})


def with_image(backend: Document, topology: str, image: str) -> Document:
    """Its server has this image, and asks for no processor of the test's machine."""
    server = f"spec.lmCache.{topology}.server"
    resources = {"requests": {"cpu": "10m", "memory": "5Gi"}, "limits": {"memory": "6Gi"}}
    return change(change(backend, f"{server}.image", image), f"{server}.resources", resources)


async def explained(installation: Installation, name: str, reason: str) -> None:
    """Wait until that is why the backend is ready or is not."""
    path = f"jsonpath={{{READY}.reason}}={reason}"
    try:
        await installation.serving.wait(f"cachebackend/{name}", path, WITHIN_S)
    except AssertionError as error:
        error.add_note(await installation.serving("get", "cachebackend", name, "--output=yaml"))
        error.add_note(await installation.serving("get", "pods", "--output=wide"))
        raise


async def engine_of(installation: Installation, domain: str) -> Pod:
    """The one engine that is ready."""
    found: list[Pod] = []

    async def is_there() -> bool:
        found[:] = await installation.engines(domain)
        return len(found) == 1

    await eventually(is_there, within_s=WITHIN_S, what=f"an engine of {domain}")
    return found[0]


async def container(installation: Installation, pod: str, name: str) -> dict[str, Any]:
    """A container of a pod, as injected."""
    spec = json.loads(await installation.serving("get", "pod", pod, "--output=jsonpath={.spec}"))
    (found,) = (each for each in spec["initContainers"] + spec["containers"] if each["name"] == name)
    return dict(found)


async def said_by_redis(address: str, *commands: str) -> list[str]:
    """Its answers, a line each."""
    reader, writer = await asyncio.open_connection(address, 6379)
    try:
        answers = []
        for command in commands:
            writer.write(f"{command}\r\n".encode())
            answers.append((await asyncio.wait_for(reader.readline(), 30)).decode().strip())
        return answers
    finally:
        writer.close()
        await writer.wait_closed()


@rule("OPS-119", "OPS-125")
async def test_the_quickstart_goes_as_the_chapter_lists_it(installation: Installation) -> None:
    kubectl, backend = installation.serving, "cachebackend/quick"
    image = installation.node.pinned(f"docker.io/{ENGINE_IMAGE}")
    quick = with_image(placed(pod_local(), "quick", "quick-model"), "podLocal", image)
    before = await kubectl("get", "deployments,services", "--output=name")
    await kubectl.apply(quick)
    await explained(installation, "quick", "NoEnginePods")
    assert await kubectl("get", "deployments,services", "--output=name") == before
    tier = "--host-blocks=512"
    await kubectl.apply(engine_deployment("quick-engines", "quick", model="quick-model", arguments=[tier]))
    engine = await engine_of(installation, "quick")
    server = await container(installation, engine.name, "lmcache-mp-server")
    assert server["image"] == image
    wired = await container(installation, engine.name, "vllm")
    assert "--kv-transfer-config" in wired["args"]
    await container(installation, engine.name, "kvevent-subscriber")
    await kubectl.wait(backend, "jsonpath={.status.matchedEnginePods}=1", WITHIN_S)
    await kubectl.wait(backend, "condition=ConnectorReady", WITHIN_S)
    await explained(installation, "quick", "AwaitingFirstKVEvent")
    await installation.complete(engine, prompt(200), "quick-model")
    await explained(installation, "quick", "KVEventsObserved")
    await installation.complete(engine, prompt(200), "quick-model")
    await installation.hinted(prompt(200), engine.name, model="quick-model")
    shown = await kubectl("get", "cachebackend", "quick")
    heading = shown.splitlines()[0].split()
    assert heading == ["NAME", "TYPE", "READY", "MATCHED", "REMOTE", "PREFIXES", "LASTEVENT", "AGE"]


@rule("OPS-120", "OPS-125")
async def test_a_managed_redis_is_made_and_engines_made_anew_share_it(installation: Installation) -> None:
    kubectl, backend = installation.serving, "cachebackend/quick"
    secret = {"password": base64.b64encode(PASSWORD.encode()).decode()}
    metadata = {"name": "redis", "namespace": SERVING}
    await kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": secret})
    await kubectl("label", "node", NODE, "disk=fast")
    managed = {
        "provider": "Redis",
        "ownership": "Managed",
        "workload": {"nodeSelector": {"disk": "fast"}, "terminationGracePeriodSeconds": 7},
        "redis": {
            "image": installation.node.pinned(REDIS_IMAGE),
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "authentication": {"password": {"name": "redis", "key": "password"}},
        },
    }
    await change_storage(installation, managed)
    await kubectl.wait("deployment/quick", "create", WITHIN_S)
    await installation.rolled_out(kubectl, "deployment/quick")
    pod = ".spec.template.spec"
    assert await kubectl.value("deployment/quick", f"{pod}.nodeSelector.disk") == "fast"
    assert await kubectl.value("deployment/quick", f"{pod}.terminationGracePeriodSeconds") == "7"
    endpoint = f"quick.{SERVING}.svc.cluster.local:6379"
    await kubectl.wait(backend, f"jsonpath={{.status.remoteStorage.endpoint}}={endpoint}", WITHIN_S)
    address = await kubectl.value("service/quick", ".spec.clusterIP")
    (refusal,) = await said_by_redis(address, "PING")
    assert refusal.startswith("-NOAUTH")
    assert await said_by_redis(address, f"AUTH {PASSWORD}", "PING") == ["+OK", "+PONG"]

    engine = await recreated(installation)
    arguments = (await container(installation, engine.name, "lmcache-mp-server"))["args"]
    assert "--l2-adapter" in arguments
    assert PASSWORD not in " ".join(arguments)
    await installation.complete(engine, prompt(201), "quick-model")
    await kubectl.wait(backend, "condition=RemoteStorageReady", WITHIN_S)
    await kubectl.wait(backend, "condition=Ready", WITHIN_S)


@pytest.mark.prometheus
@rule("OPS-40")
async def test_every_series_of_the_controller_that_alerts_and_panels_ask_for_has_a_sample(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With a failed probe: nobody folds the log while there is no indexer.

    Only backends with a store of their own are probed, so this one has it by now.
    """
    ours = {measure.series for measure in MEASURES["controller"]}
    (controller,) = await installation.pods(CONTROLLER)
    kubectl, indexers = installation.kubectl, "statefulset/inference-cache-indexer"
    targets = {controller.name: f"{controller.address}:8080"}
    async with Prometheus(tmp_path_factory.mktemp("prometheus"), targets) as prometheus:
        asked = {
            str(each) for expression in expressions() for each in selectors(expression) if each.name in ours
        }
        assert asked

        async def have_samples(some: Iterable[str]) -> None:
            for selector in sorted(some):

                async def has_sample(series: str = f"last_over_time({selector}[10m])") -> bool:
                    return bool(await prometheus.query(series))

                await eventually(has_sample, within_s=WITHIN_S, what=f"a sample of {selector}")

        try:
            # The engine's statistics come through an indexer, so there still has to be one.
            await have_samples(each for each in asked if "_t2_" in each)
        except AssertionError as error:
            _, page = await installation.page(f"http://{controller.address}:8080/metrics")
            error.add_note("\n".join(line for line in page.splitlines() if "inferencecache" in line))
            raise
        await kubectl("scale", indexers, "--replicas=0")
        try:
            await have_samples(asked)
        finally:
            await kubectl("scale", indexers, "--replicas=2")
    await installation.available()
    await installation.serving.wait("cachebackend/quick", "condition=Ready", WITHIN_S)


@rule("OPS-120")
async def test_a_lost_redis_costs_no_engine_and_an_external_one_takes_its_place(
    installation: Installation,
) -> None:
    kubectl, backend = installation.serving, "cachebackend/quick"
    engine = await engine_of(installation, "quick")
    await kubectl("cordon", NODE)  # or the next one would be there at once
    try:
        await kubectl("delete", "pod", "--selector=app.kubernetes.io/instance=quick")
        await kubectl.wait(backend, "condition=RemoteStorageReady=false", WITHIN_S)
        assert await kubectl.value(backend, f"{READY}.status") == "True"
        assert (await engine_of(installation, "quick")).name == engine.name
        restarts = await kubectl.value(f"pod/{engine.name}", ".status.containerStatuses[*].restartCount")
        assert set(restarts.split()) == {"0"}
    finally:
        await kubectl("uncordon", NODE)
    await kubectl.wait(backend, "condition=RemoteStorageReady", WITHIN_S)

    external = {"ownership": "External", "endpoint": "redis.example:6379", "workload": None, "redis": None}
    await change_storage(installation, external)
    for owned in ("deployment/quick", "service/quick"):
        await kubectl.wait(owned, "delete", WITHIN_S)
    await kubectl.wait(backend, "jsonpath={.status.remoteStorage.endpoint}=redis.example:6379", WITHIN_S)
    await explained(installation, "quick", "ConnectorInjectionUnverified")
    assert await kubectl.value(backend, f"{READY}.status") == "Unknown"
    await recreated(installation)
    await kubectl.wait(backend, "condition=Ready", WITHIN_S)
    await kubectl("delete", "deployment", "quick-engines")
    await kubectl("delete", backend)


async def change_storage(installation: Installation, storage: dict[str, Any]) -> None:
    patch = json.dumps({"spec": {"remoteStorage": storage}})
    await installation.serving("patch", "cachebackend", "quick", "--type=merge", f"--patch={patch}")


async def recreated(installation: Installation) -> Pod:
    """The engine of the quickstart, made anew."""
    before = await engine_of(installation, "quick")
    await installation.serving("rollout", "restart", "deployment/quick-engines")
    await installation.rolled_out(installation.serving, "deployment/quick-engines")
    found: list[Pod] = []

    async def is_there() -> bool:
        found[:] = await installation.engines("quick")
        return len(found) == 1 and found[0].name != before.name

    await eventually(is_there, within_s=WITHIN_S)
    return found[0]


@rule("OPS-121", "OPS-125")
async def test_a_server_of_a_node_comes_with_its_first_engine_and_outlives_the_last(
    installation: Installation,
) -> None:
    kubectl = installation.serving
    image = installation.node.pinned(f"docker.io/{ENGINE_IMAGE}")
    backend = with_image(placed(node_local(), "on-node", "node-model"), "nodeLocal", image)
    backend = change(backend, "spec.lmCache.nodeLocal.idleRetentionSeconds", 5)
    await kubectl.apply(backend)
    await explained(installation, "on-node", "NoEnginePods")
    servers = ("get", "pods", "--selector=inferencecache.io/lmcache-node-server", "--output=name")
    assert await kubectl(*servers) == ""
    await kubectl.apply(engine_deployment("on-node", "on-node", model="node-model"))
    engine = await engine_of(installation, "on-node")
    (server,) = (await kubectl(*servers)).split()
    assert await kubectl.value(server, ".spec.nodeName") == NODE
    assert await kubectl.value(server, ".spec.containers[0].ports[*].hostPort") == "6555 18080"
    assert await installation.page(f"http://{GATEWAY}:18080/healthcheck") == (200, '{"status": "healthy"}')
    uid = await kubectl.value("cachebackend/on-node", ".metadata.uid")
    assert uid in await kubectl.value(server, ".spec.volumes[*].hostPath.path")
    await explained(installation, "on-node", "AwaitingFirstKVEvent")
    await installation.complete(engine, prompt(210), "node-model")
    await installation.hinted(prompt(210), engine.name, model="node-model")
    await explained(installation, "on-node", "KVEventsObserved")
    await kubectl("delete", "deployment", "on-node")
    await kubectl.wait(server, "delete", WITHIN_S)


@rule("OPS-125")
async def test_backends_without_a_store_make_no_workload(installation: Installation) -> None:
    kubectl = installation.serving
    before = await kubectl("get", "deployments,services,statefulsets", "--output=name")
    for backend, name in ((events_only(), "observed"), (hi_cache(), "hosted")):
        await kubectl.apply(placed(backend, name, "m"))
        await explained(installation, name, "AwaitingFirstKVEvent")
    assert await kubectl("get", "deployments,services,statefulsets", "--output=name") == before
    await kubectl("delete", "cachebackend", "observed", "hosted")


@rule("OPS-119")
async def test_without_events_a_backend_says_so_when_its_time_is_up(installation: Installation) -> None:
    """As when the controller was not told of the sidecar's image: nobody reports."""
    kubectl = installation.serving
    image = installation.node.pinned(f"docker.io/{ENGINE_IMAGE}")
    backend = with_image(placed(pod_local(), "silent", "silent-model"), "podLocal", image)
    await kubectl.apply(change(backend, "spec.observation.firstEventTimeout", "3s"))
    silent = engine_deployment("silent", "silent", model="silent-model", arguments=["--events-endpoint="])
    await kubectl.apply(silent)
    await explained(installation, "silent", "NoKVEventsObserved")
    await kubectl.wait("cachebackend/silent", "condition=Degraded", WITHIN_S)
    await kubectl("delete", "deployment", "silent")
    await kubectl("delete", "cachebackend", "silent")


@rule("OPS-61")
async def test_requests_cover_what_an_installation_at_work_needs(installation: Installation) -> None:
    """Measured in the containers' control groups, after everything above."""
    told = json.loads(await installation.kubectl("get", "pods", "--output=json"))
    needed = {}
    for pod in told["items"]:
        ids = {each["name"]: each["containerID"] for each in pod["status"]["containerStatuses"]}
        for each in pod["spec"]["containers"]:
            request = size_of(each["resources"]["requests"]["memory"])
            needed[pod["metadata"]["name"]] = (installation.node.working_set(ids[each["name"]]), request)
    assert len(needed) == 6
    assert {name: sizes for name, sizes in needed.items() if sizes[0] > sizes[1]} == {}, needed
