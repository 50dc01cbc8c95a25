"""The server of a node as the controller runs it, and as the gate of its engines expects it."""

from __future__ import annotations

import hashlib

import pytest

from inferencecache.controller.adapters import find_adapter
from inferencecache.controller.injection.bindings import resolve_binding
from inferencecache.controller.injection.node_server import node_server_name, node_server_pod
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.core.kube.backends import Backend
from tests.support.backends import IMAGE, change, node_local
from tests.support.engine_pods import NODE_IP, SECURITY, mp_server, pod_v
from tests.unit.controller.injection.asking import Document, wire

NODE = "gpu-1.example.com"
SUFFIX = hashlib.sha256(NODE.encode()).hexdigest()[:12]
ARGS = (
    "server --instance-id team-a/cache@u-1#3 --shm-name lmcache_l1_pool_inferencecache_u-1 "
    "--host $(INFERENCECACHE_NODE_IP) --port 6555 --http-host $(INFERENCECACHE_NODE_IP) --http-port 18080 "
    "--chunk-size 256 --l1-size-gb 4 --eviction-policy LRU --max-gpu-workers 4 --max-cpu-workers 4"
)
SCHEDULING = "spec.lmCache.nodeLocal.scheduling"
TAINT = {"key": "gpu", "operator": "Exists"}


def scheduled(**spec: object) -> Document:
    """An engine's pod on the node."""
    pod = pod_v()
    pod["spec"] |= {"nodeName": NODE} | spec
    return pod


def server(backend: Document, engine: Document | None = None) -> Document:
    read = Backend(backend)
    adapter = find_adapter(read)
    assert adapter is not None
    return node_server_pod(read, engine or scheduled(), resolve_binding(read, adapter))


@pytest.mark.rule("ADM-263", "ADM-264", "ADM-265", "ADM-266", "ADM-268", "ADM-269")
@pytest.mark.rule("CTL-71", "CTL-72", "CTL-73", "CTL-75", "CTL-76", "CTL-77", "CTL-78", "CTL-79")
def test_a_backend_without_further_settings_gives_this_pod() -> None:
    probes = {key: value for key, value in mp_server().items() if key.endswith("Probe")}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    assert server(node_local()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"cache-{SUFFIX}",
            "namespace": "team-a",
            "labels": {
                "app.kubernetes.io/name": "lmcache-mp-server",
                "app.kubernetes.io/managed-by": "inference-cache-controller",
                "inferencecache.io/lmcache-node-server": "true",
                "inferencecache.io/cache-backend-uid": "u-1",
                "inferencecache.io/lmcache-mp-metrics": "true",
            },
            "annotations": {
                "inferencecache.io/node-local-owner": "team-a/cache",
                "inferencecache.io/node-local-owner-uid": "u-1",
                "inferencecache.io/node-local-generation": "3",
                "inferencecache.io/node-local-target-node": NODE,
                "inferencecache.io/node-local-shm-name": "lmcache_l1_pool_inferencecache_u-1",
            },
        },
        "spec": {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
                }
            },
            "containers": [
                {
                    "name": "lmcache-mp-server",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["lmcache"],
                    "args": ARGS.split(),
                    "env": [
                        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                        {"name": "INFERENCECACHE_MP_SERVER", "value": "true"},
                        NODE_IP,
                    ],
                    "ports": [
                        {"name": "lmcache-mp", "containerPort": 6555, "hostPort": 6555, "protocol": "TCP"},
                        {
                            "name": "lmcache-http",
                            "containerPort": 18080,
                            "hostPort": 18080,
                            "protocol": "TCP",
                        },
                    ],
                    **probes,
                    "securityContext": SECURITY,
                    "volumeMounts": [{"name": "lmcache-node-shm", "mountPath": "/dev/shm"}],
                    "resources": {"requests": {"cpu": "1", "memory": "5Gi"}, "limits": {"memory": "5Gi"}},
                }
            ],
            "volumes": [
                {
                    "name": "lmcache-node-shm",
                    "hostPath": {"path": "/dev/shm/inference-cache/u-1", "type": "DirectoryOrCreate"},
                }
            ],
        },
    }


@pytest.mark.rule("ADM-263", "CTL-70")
def test_a_long_name_is_cut_to_what_a_name_may_be() -> None:
    def name_of(name: str) -> str:
        return node_server_name(Backend(change(node_local(), "metadata.name", name)), NODE)

    assert name_of("b" * 253) == f"{'b' * 240}-{SUFFIX}"
    assert name_of(f"{'b' * 239}.{'c' * 13}") == f"{'b' * 239}-{SUFFIX}"
    assert name_of(f"{'b' * 237}.-.c") == f"{'b' * 237}-{SUFFIX}"


@pytest.mark.rule("ADM-267", "CTL-74")
def test_it_is_scheduled_like_its_engine_with_what_the_backend_adds() -> None:
    engine = scheduled(
        tolerations=[TAINT],
        imagePullSecrets=[{"name": "a"}],
        priorityClassName="high",
        schedulerName="gang",
        runtimeClassName="nvidia",
        nodeSelector={"pool": "x"},
        serviceAccountName="engines",
        securityContext={"runAsUser": 7},
        terminationGracePeriodSeconds=600,
        hostIPC=True,
    )
    inherited = server(node_local(), engine)["spec"]
    assert inherited["tolerations"] == [TAINT]
    assert inherited["imagePullSecrets"] == [{"name": "a"}]
    chosen = ("priorityClassName", "schedulerName", "runtimeClassName", "terminationGracePeriodSeconds")
    assert [inherited[key] for key in chosen] == ["high", "gang", "nvidia", 30]
    assert (
        not {"nodeSelector", "nodeName", "hostIPC", "serviceAccountName", "securityContext"}
        & inherited.keys()
    )

    own = {
        "tolerations": [TAINT, {"operator": "Exists"}],
        "imagePullSecrets": [{"name": "b"}, {"name": "a"}],
        "priorityClassName": "low",
        "schedulerName": "own",
        "runtimeClassName": "other",
        "terminationGracePeriodSeconds": 0,
        "serviceAccountName": "servers",
        "securityContext": {"fsGroup": 1},
    }
    merged = server(change(node_local(), SCHEDULING, own), engine)["spec"]
    assert merged["tolerations"] == [TAINT, {"operator": "Exists"}]
    assert merged["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    for key in own.keys() - {"tolerations", "imagePullSecrets"}:
        assert merged[key] == own[key]


@pytest.mark.rule("ADM-268", "ADM-269", "ADM-180")
def test_a_store_and_its_credentials_are_the_servers() -> None:
    store = {"provider": "Redis", "ownership": "External", "endpoint": "r:6379"}
    store["redis"] = {"authentication": {"password": {"name": "n", "key": "k"}}}  # type: ignore[assignment]
    backend = change(node_local(), "spec.remoteStorage", store)
    (container,) = server(backend)["spec"]["containers"]
    assert container["args"] == [*ARGS.split(), "--l2-adapter", '{"host":"r","port":6379,"type":"resp"}']
    assert [entry["name"] for entry in container["env"]][2:] == [
        "INFERENCECACHE_NODE_IP",
        "LMCACHE_RESP_PASSWORD",
    ]
    assert "LMCACHE_RESP_PASSWORD" not in str(wire(pod_v(), backend))


@pytest.mark.rule("ADM-270")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.uid", ""),
        ("spec.lmCache.nodeLocal.server.image", " "),
        ("spec.lmCache.nodeLocal.server.port", 0),
        ("spec.lmCache.nodeLocal.server.httpPort", 65536),
        ("spec.lmCache.nodeLocal.server.httpPort", 6555),
        ("spec.lmCache.nodeLocal.server.l1Capacity", "0"),
        ("spec.lmCache.nodeLocal.server.l1Capacity", "-1Gi"),
        ("spec.lmCache.nodeLocal.server.maxGPUWorkers", 0),
        ("spec.lmCache.nodeLocal.server.maxCPUWorkers", 0),
        ("spec.lmCache.chunkSizeTokens", 0),
    ],
    ids=str,
)
def test_no_server_is_described_that_could_not_run(path: str, value: object) -> None:
    with pytest.raises(NotWiredError):
        server(change(node_local(), path, value))


@pytest.mark.rule("ADM-270")
def test_no_server_is_described_for_an_engine_without_a_node() -> None:
    with pytest.raises(NotWiredError, match="no node"):
        server(node_local(), pod_v())


@pytest.mark.rule("ADM-191", "ADM-192", "ADM-196")
def test_the_gate_expects_what_the_server_is_told() -> None:
    (container,) = server(node_local())["spec"]["containers"]
    (gate,) = wire(pod_v(), node_local())["spec"]["initContainers"]
    expected = {entry["name"]: entry.get("value", "") for entry in gate["env"]}
    flags = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    for variable, flag in (
        ("EXPECTED_INSTANCE_ID", "--instance-id"),
        ("EXPECTED_SHM_NAME", "--shm-name"),
        ("EXPECTED_MP_PORT", "--port"),
        ("EXPECTED_HTTP_PORT", "--http-port"),
        ("EXPECTED_CHUNK_SIZE", "--chunk-size"),
        ("EXPECTED_MAX_GPU_WORKERS", "--max-gpu-workers"),
        ("EXPECTED_MAX_CPU_WORKERS", "--max-cpu-workers"),
    ):
        assert expected[variable] == flags[flag]
