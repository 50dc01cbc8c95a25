"""Pods of engines before and after they are wired, as documents, and the worked cases about them.

What is expected is written out here by hand; nothing of it comes from the code under test but the two
scripts, whose behaviour has tests of its own.
"""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

from inferencecache.controller.injection.scripts import script_text
from tests.support.backends import (
    DOMAIN,
    IMAGE,
    REDIS,
    change,
    events_only,
    hi_cache,
    node_local,
    pod_local,
)

Document = dict[str, Any]

SIDECAR_IMAGE = "registry.example.com/kvevent-subscriber:1"
PREFIX = "inferencecache.io/"
MARKS = {
    f"{PREFIX}injected-by": "team-a/cache",
    f"{PREFIX}injected-by-uid": "u-1",
    f"{PREFIX}injected-generation": "3",
}
SKIPPED = {f"{PREFIX}inject-skipped": "skip-inject-annotation"}


def engine_pod(
    *args: str,
    name: str = "vllm",
    labels: Document | None = None,
    annotations: Document | None = None,
    **engine: Any,
) -> Document:
    """A pod with one container, the engine; Pod-v with the arguments `--model x` and its variable."""
    container = {"name": name, "image": "engine:1", "args": list(args)} | engine
    metadata: Document = {"name": "engine", "labels": {DOMAIN: "engine"} if labels is None else labels}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def pod_v(*more: str, **engine: Any) -> Document:
    """Pod-v, with more arguments."""
    return engine_pod("--model", "x", *more, **{"env": [{"name": "USER_FLAG", "value": "u"}]} | engine)


def engine_of(pod: Document) -> Document:
    """The first container."""
    engine: Document = pod["spec"]["containers"][0]
    return engine


def with_volume(pod: Document, volume: Document, mount: Document) -> Document:
    """A copy whose engine mounts a volume `own` at /dev/shm."""
    changed = copy.deepcopy(pod)
    changed["spec"]["volumes"] = [{"name": "own"} | volume]
    engine_of(changed)["volumeMounts"] = [{"name": "own", "mountPath": "/dev/shm"} | mount]
    return changed


def with_init(pod: Document, name: str, **container: Any) -> Document:
    """A copy with an init container of the author's."""
    changed = copy.deepcopy(pod)
    own = {"name": name, "image": "own:1"} | container
    changed["spec"]["initContainers"] = [*changed["spec"].get("initContainers", []), own]
    return changed


# ------------------------------------------------------------------------------- what is expected

FAIL_OPEN = {"name": "INFERENCECACHE_FAIL_OPEN", "value": "true"}
HASH_SEED = {"name": "PYTHONHASHSEED", "value": "0"}
NODE_IP: Document = {
    "name": "INFERENCECACHE_NODE_IP",
    "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}},
}
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def transfer_config(port: str, host: str = "127.0.0.1") -> str:
    """The value of `--kv-transfer-config`."""
    return (
        '{"kv_connector":"LMCacheMPConnector",'
        '"kv_connector_module_path":"lmcache.integration.vllm.lmcache_mp_connector",'
        '"kv_role":"kv_both",'
        '"kv_connector_extra_config":{'
        f'"lmcache.mp.host":"tcp://{host}","lmcache.mp.port":"{port}"'
        "}}"
    )


def vllm_args(*args: str, port: str = "6500", host: str = "127.0.0.1") -> list[str]:
    """Arguments of a wired vLLM engine."""
    return [
        *args,
        "--kv-transfer-config",
        transfer_config(port, host),
        "--disable-hybrid-kv-cache-manager",
    ]


def _probe(period: int, failures: int) -> Document:
    check = {"path": "/healthcheck", "port": "lmcache-http", "scheme": "HTTP"}
    return {"httpGet": check, "timeoutSeconds": 2, "periodSeconds": period, "failureThreshold": failures}


def server_args(capacity: str = "4", more: tuple[str, ...] = ()) -> list[str]:
    """Arguments of `lmcache` in a pod."""
    text = (
        "server --host 127.0.0.1 --port 6500 --http-host 0.0.0.0 --http-port 8080 --chunk-size 256 "
        f"--l1-size-gb {capacity} --eviction-policy LRU --max-workers 4"
    )
    return [*text.split(), *more]


def mp_server(**different: Any) -> Document:
    """The server of B-pl in a vLLM pod."""
    return {
        "name": "lmcache-mp-server",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": ["lmcache"],
        "args": server_args(),
        "env": [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "INFERENCECACHE_MP_SERVER", "value": "true"},
        ],
        "ports": [
            {"name": "lmcache-mp", "containerPort": 6500, "protocol": "TCP"},
            {"name": "lmcache-http", "containerPort": 8080, "protocol": "TCP"},
        ],
        "startupProbe": _probe(3, 40),
        "readinessProbe": _probe(5, 3),
        "livenessProbe": _probe(10, 3),
        "securityContext": SECURITY,
        "resources": {"requests": {"cpu": "1", "memory": "5Gi"}, "limits": {"memory": "5Gi"}},
        "volumeMounts": [{"name": "lmcache-mp-shm", "mountPath": "/dev/shm"}],
    } | different


def shm_volume(size: str = "5Gi") -> Document:
    """The memory that engine and server share."""
    return {"name": "lmcache-mp-shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def sidecar(
    *, port: int = 8000, scheme: str = "vllm", offload: bool = True, model: str = "m", **different: Any
) -> Document:
    """The sidecar as a controller without further settings attaches it."""
    args = [
        "--engine-endpoint=tcp://127.0.0.1:5557",
        "--nats-url=nats://inference-cache-nats.inference-cache-system.svc.cluster.local:4222",
        "--replica-id=$(POD_NAME)",
        "--tenant-id=$(POD_NAMESPACE)",
        f"--model-id={model}",
        f"--hash-scheme={scheme}",
        f"--engine-metrics-url=http://127.0.0.1:{port}/metrics",
    ]
    fields = {"POD_NAME": "name", "POD_NAMESPACE": "namespace", "POD_UID": "uid"}
    return {
        "name": "kvevent-subscriber",
        "image": SIDECAR_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": [*args, "--ignore-block-removed=true"] if offload else args,
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{field}"}}}
            for name, field in fields.items()
        ],
        "ports": [{"name": "kvevents-http", "containerPort": 8082, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"cpu": "200m", "memory": "128Mi"},
        },
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    } | different


def gate(config_path: str = "", **different: Any) -> Document:
    """The gate of B-nl."""
    expected = {
        "EXPECTED_INSTANCE_ID": "team-a/cache@u-1#3",
        "EXPECTED_SHM_NAME": "lmcache_l1_pool_inferencecache_u-1",
        "EXPECTED_MP_PORT": "6555",
        "EXPECTED_HTTP_PORT": "18080",
        "EXPECTED_CHUNK_SIZE": "256",
        "EXPECTED_MAX_GPU_WORKERS": "4",
        "EXPECTED_MAX_CPU_WORKERS": "4",
    }
    client = {"value": config_path} if config_path else {}
    return {
        "name": "lmcache-node-local-gate",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c"],
        "args": [script_text("gate")],
        "env": [
            {"name": "INFERENCECACHE_NODE_LOCAL_GATE", "value": "true"},
            NODE_IP,
            *({"name": name, "value": value} for name, value in expected.items()),
            {"name": "CLIENT_CONFIG_PATH"} | client,
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": SECURITY,
    } | different


def kernel_check(engine: Document, strict: str) -> Document:
    """The check of a wired engine."""
    env = [entry for entry in engine["env"] if entry["name"] != "KERNEL_CHECK_STRICT"]
    return {
        "name": "lmcache-kernel-check",
        "image": engine["image"],
        "command": ["python3", "-c", script_text("kernel_check")],
        "env": [*env, {"name": "KERNEL_CHECK_STRICT", "value": strict}],
        "volumeMounts": engine["volumeMounts"],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def wired(
    pod: Document,
    engine: Document | None = None,
    *,
    init: tuple[Document, ...] = (),
    volumes: tuple[Document, ...] = (),
    sidecars: tuple[Document, ...] = (),
    metrics: bool = False,
) -> Document:
    """The pod with parts of its engine replaced, containers and volumes appended, and the marks."""
    expected = copy.deepcopy(pod)
    spec = expected["spec"]
    engine_of(expected).update(engine or {})
    spec["containers"] = [*spec["containers"], *sidecars]
    for key, more in (("initContainers", init), ("volumes", volumes)):
        if more:
            spec[key] = [*spec.get(key, ()), *more]
    metadata = expected["metadata"]
    metadata["annotations"] = metadata.get("annotations", {}) | MARKS
    if metrics:
        metadata["labels"] = metadata["labels"] | {f"{PREFIX}lmcache-mp-metrics": "true"}
    return expected


def pod_local_wired(
    pod: Document,
    *args: str,
    server: Document | None = None,
    size: str = "5Gi",
    more: tuple[Document, ...] = (),
    sidecars: tuple[Document, ...] = (),
) -> Document:
    """A vLLM pod wired to B-pl; `args` are those it had, `more` init containers that follow."""
    engine = {
        "args": vllm_args(*args),
        "env": [*engine_of(pod).get("env", ()), HASH_SEED, FAIL_OPEN],
        "volumeMounts": [{"name": "lmcache-mp-shm", "mountPath": "/dev/shm"}],
    }
    init = (mp_server(**(server or {})), *more)
    return wired(pod, engine, init=init, volumes=(shm_volume(size),), sidecars=sidecars, metrics=True)


# ------------------------------------------------------------------------------- the worked cases


class PodCase(NamedTuple):
    """`expected` is the pod as it is stored; with a `message` fragment and no expectation the pod is
    stored as it came, or refused when `denied`. `observed` says that the controller has a sidecar image.
    """

    rule: str
    name: str
    pod: Document
    backends: tuple[Document, ...]
    expected: Document | None = None
    message: str = ""
    denied: bool = False
    observed: bool = False

    def __str__(self) -> str:
        return f"{self.rule}-{self.name}".replace(" ", "-")


def _managed(endpoint: str | None) -> Document:
    backend = change(pod_local(), "spec.remoteStorage", REDIS)
    return backend if endpoint is None else change(backend, "status.remoteStorage.endpoint", endpoint)


def _case_23_to_25() -> list[PodCase]:
    stored = "cache.team-a.svc.cluster.local"
    adapter = json.dumps({"host": stored, "port": 6379, "type": "resp"}, separators=(",", ":"))
    smaller = change(pod_local(), "spec.lmCache.podLocal.server.l1Capacity", "1536Mi")
    args = ("--model", "x")
    return [
        PodCase("ADM-W23", "whole", pod_v(), (pod_local(),), pod_local_wired(pod_v(), *args)),
        PodCase(
            "ADM-W24",
            "fractions",
            pod_v(),
            (smaller,),
            pod_local_wired(pod_v(), *args, server={"args": server_args("1.5")}, size="2560Mi"),
        ),
        PodCase(
            "ADM-W25",
            "managed",
            pod_v(),
            (_managed(f"{stored}:6379"),),
            pod_local_wired(pod_v(), *args, server={"args": server_args(more=("--l2-adapter", adapter))}),
        ),
        PodCase("ADM-W25", "not yet", pod_v(), (_managed(None),), message="status.remoteStorage.endpoint"),
    ]


def _case_26_and_27() -> list[PodCase]:
    def vllm(*args: str, message: str = "") -> PodCase:
        pod = pod_v(*args)
        expected = None if message else pod_local_wired(pod, "--model", "x", *args)
        return PodCase("ADM-W26", " ".join(args), pod, (pod_local(),), expected, message)

    def sglang(name: str, *args: str, message: str = "", command: list[str] | None = None) -> PodCase:
        pod = engine_pod(*args, name="sglang")
        if command:
            engine_of(pod)["command"] = command
        expected = None if message else sglang_wired(pod, *args)
        return PodCase("ADM-W27", name, pod, (pod_local("SGLang"),), expected, message)

    return [
        vllm("--pipeline-parallel-size=2", message="--pipeline-parallel-size 2"),
        vllm("-dp", "2", message="--data-parallel-size 2"),
        vllm("--data-parallel-rank=0", message="--data-parallel-rank"),
        vllm("-tp", "2"),
        vllm("-tp", "2", "--tensor-parallel-size=2", message="2 times"),
        sglang("divides", "--page-size", "64"),
        sglang("does not divide", "--page-size=96", message="96 is no divisor of 256"),
        sglang("none", message="--page-size"),
        sglang("in command", message="--page-size", command=["serve", "--page-size", "64"]),
    ]


def sglang_wired(pod: Document, *args: str) -> Document:
    """An SGLang pod wired to the SGLang form of B-pl, without a sidecar."""
    path = "/var/run/inference-cache/lmcache/client.yaml"
    mounts = [
        {"name": "lmcache-mp-config", "mountPath": "/var/run/inference-cache/lmcache"},
        {"name": "lmcache-mp-shm", "mountPath": "/dev/shm"},
    ]
    engine = {
        "args": [*args, "--enable-lmcache", "--lmcache-config-file", path],
        "env": [{"name": "LMCACHE_USE_EXPERIMENTAL", "value": "True"}, FAIL_OPEN],
        "volumeMounts": mounts,
    }
    script = (
        'set -eu\nprintf \'chunk_size: %s\\nmp_host: "127.0.0.1"\\nmp_port: %s\\n\' "$2" "$3" > "$1"\n'
        'shift 3\nexec "$@"\n'
    )
    start = [script, "inference-cache-lmcache-config", path, "256", "6500", "lmcache"]
    server = mp_server(
        command=["/bin/sh", "-c"], args=[*start, *server_args()], volumeMounts=list(reversed(mounts))
    )
    volumes = ({"name": "lmcache-mp-config", "emptyDir": {}}, shm_volume())
    return wired(pod, engine, init=(server,), volumes=volumes, metrics=True)


def node_local_wired(pod: Document, *args: str) -> Document:
    """A vLLM pod wired to B-nl."""
    engine = {
        "args": vllm_args(*args, port="6555", host="$(INFERENCECACHE_NODE_IP)"),
        "env": [*engine_of(pod).get("env", ()), NODE_IP, HASH_SEED, FAIL_OPEN],
        "volumeMounts": [{"name": "lmcache-node-shm", "mountPath": "/dev/shm"}],
    }
    folder = {"path": "/dev/shm/inference-cache/u-1", "type": "DirectoryOrCreate"}
    return wired(pod, engine, init=(gate(),), volumes=({"name": "lmcache-node-shm", "hostPath": folder},))


def _case_28_to_30() -> list[PodCase]:
    chosen = change(pod_v(), "spec.nodeSelector", {"pool": "x"})
    memory = {"medium": "Memory"}

    def own(name: str, volume: Document, mount: Document, message: str) -> PodCase:
        pod = with_volume(pod_v(), {"emptyDir": volume}, mount)
        return PodCase("ADM-W29", name, pod, (pod_local(),), message=message)

    shared = with_volume(pod_v(), {"emptyDir": memory | {"sizeLimit": "6Gi"}}, {"subPath": "s"})
    mounts = [{"name": "own", "mountPath": "/dev/shm", "subPath": "s"}]
    engine = {
        "args": vllm_args("--model", "x"),
        "env": [*engine_of(shared)["env"], HASH_SEED, FAIL_OPEN],
    }
    reused = wired(shared, engine, init=(mp_server(volumeMounts=mounts),), metrics=True)
    foreign = with_init(pod_v(), "lmcache-mp-server")
    return [
        PodCase("ADM-W28", "node", chosen, (node_local(),), node_local_wired(chosen, "--model", "x")),
        PodCase("ADM-W29", "reused", shared, (pod_local(),), reused),
        own("too small", memory | {"sizeLimit": "4Gi"}, {}, "sizeLimit of 5Gi"),
        own("unlimited", memory, {}, "sizeLimit of 5Gi"),
        own("disk", {"sizeLimit": "6Gi"}, {}, "medium Memory"),
        own("read-only", memory | {"sizeLimit": "6Gi"}, {"readOnly": True}, "read-only"),
        PodCase("ADM-W30", "foreign server", foreign, (pod_local(),), message="lmcache-mp-server"),
    ]


def _case_31() -> list[PodCase]:
    flags = ("--enable-hierarchical-cache", "--hicache-ratio", "2", "--enable-metrics")
    there = ("--enable-hierarchical-cache", "--enable-metrics", "--hicache-ratio=2.0")

    def hicache(name: str, args: tuple[str, ...], added: tuple[str, ...] = (), message: str = "") -> PodCase:
        pod = engine_pod(*args, name="sglang")
        expected = None if message else wired(pod, {"args": [*args, *added]})
        return PodCase("ADM-W31", name, pod, (hi_cache(),), expected, message)

    return [
        hicache("appended", ("--model-path", "m"), flags),
        hicache("kept", there),
        hicache("other ratio", ("--hicache-ratio=3",), message="--hicache-ratio"),
        hicache("size", ("--hicache-size", "8"), message="--hicache-size"),
        hicache("lmcache", ("--enable-lmcache",), message="--enable-lmcache"),
    ]


def _case_32_and_33() -> list[PodCase]:
    overridden = change(events_only(), "spec.integration.engineOverrides", {"args": ["--more"]})
    there = copy.deepcopy(pod_v())
    there["spec"]["containers"].append({"name": "kvevent-subscriber", "image": "own:1"})
    observed = change(pod_local(), "spec.observation", {"modelID": "m"})

    def port(name: str, args: tuple[str, ...], port: int, env: list[Document] | None = None) -> PodCase:
        pod = pod_v(*args, **({"env": env} if env else {}))
        expected = pod_local_wired(pod, "--model", "x", *args, sidecars=(sidecar(port=port),))
        return PodCase("ADM-W33", name, pod, (observed,), expected, observed=True)

    return [
        PodCase(
            "ADM-W32",
            "appended",
            pod_v(),
            (overridden,),
            wired(pod_v(), sidecars=(sidecar(offload=False),)),
            observed=True,
        ),
        PodCase("ADM-W32", "no image", pod_v(), (events_only(),), message="--kvevent-subscriber-image"),
        PodCase(
            "ADM-W32",
            "there",
            there,
            (events_only(),),
            message="kvevent-subscriber of its own already",
            observed=True,
        ),
        port("last", ("--port=30000", "--port", "31000"), 31000),
        port("last legal", ("--port=33000", "--port", "abc"), 33000),
        port("variable", ("--port=$(P)",), 42000, [{"name": "P", "value": "42000"}]),
        port(
            "field",
            ("--port=$(P)",),
            8000,
            [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        ),
    ]


def _case_34_to_37() -> list[PodCase]:
    def opt_out(value: str, *, out: bool) -> PodCase:
        asked = {f"{PREFIX}skip-inject": value}
        pod = change(pod_v(), "metadata.annotations", asked)
        skipped = change(pod, "metadata.annotations", asked | SKIPPED)
        expected = skipped if out else pod_local_wired(pod, "--model", "x")
        return PodCase("ADM-W34", repr(value), pod, (pod_local(),), expected)

    claimants = (pod_local(name="zebra"), pod_local(name="alpha"))
    asked = {f"{PREFIX}skip-inject": "true"}
    shielded = change(pod_v(), "metadata.annotations", asked)
    unmatched = change(pod_v(), "metadata.labels", {"app": "x"})
    forged = change(unmatched, "metadata.annotations", {f"{PREFIX}injected-by": "x/y"})
    two = copy.deepcopy(engine_pod("--model", "x", name="engine"))
    two["spec"]["containers"].append({"name": "side", "image": "own:1"})
    return [
        *(opt_out(value, out=True) for value in ("true", "1", "yes", "please", " ", "fAlSe")),
        *(opt_out(value, out=False) for value in ("false", "0", "no", "OFF", "disabled", "")),
        PodCase("ADM-W35", "two claim", pod_v(), claimants, message="alpha, zebra", denied=True),
        PodCase(
            "ADM-W35",
            "shielded",
            shielded,
            claimants,
            change(shielded, "metadata.annotations", asked | SKIPPED),
        ),
        PodCase("ADM-W36", "forged", forged, (pod_local(),), unmatched, message="no CacheBackend"),
        PodCase("ADM-W36", "unmatched", unmatched, (pod_local(),), message="no CacheBackend"),
        PodCase("ADM-W37", "two containers", two, (pod_local(),), message="engine, side; name it vllm"),
    ]


def _case_38() -> list[PodCase]:
    gpu = pod_v(resources={"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}})
    strict = pod_v(env=[{"name": "KERNEL_CHECK_STRICT", "value": "0"}])
    backend = change(pod_local(), "metadata.annotations", {f"{PREFIX}lmcache-kernel-check": "strict"})
    own = with_init(pod_v(), "lmcache-kernel-check")

    def checked(pod: Document, value: str) -> Document:
        engine = engine_of(pod_local_wired(pod, "--model", "x"))
        return pod_local_wired(pod, "--model", "x", more=(kernel_check(engine, value),))

    return [
        PodCase("ADM-W38", "gpu", gpu, (pod_local(),), checked(gpu, "0")),
        PodCase("ADM-W38", "hand-written", own, (pod_local(),), pod_local_wired(pod_v(), "--model", "x")),
        PodCase("ADM-W38", "strict", strict, (backend,), checked(strict, "1")),
    ]


def _case_41_to_49() -> list[PodCase]:
    """The merges, with flags and variables that are really injected. Some of them are reserved."""
    config, hybrid = vllm_args()[:2], vllm_args()[2]
    flag = config[0]

    def args(number: int, name: str, pod: Document, overrides: Document, *merged: str) -> PodCase:
        backend = change(pod_local(), "spec.integration.engineOverrides", overrides)
        expected = pod_local_wired(pod)
        engine_of(expected)["args"] = list(merged)
        return PodCase(f"ADM-W{number}", name, pod, (backend,), expected)

    def env(number: int, name: str, pod: Document, overrides: Document, *merged: Document) -> PodCase:
        backend = change(node_local(), "spec.integration.engineOverrides", overrides)
        expected = node_local_wired(pod, "--model", "x")
        engine_of(expected)["env"] = list(merged)
        return PodCase(f"ADM-W{number}", name, pod, (backend,), expected)

    model = ("--model", "x")
    eager = pod_v("--eager")
    before = pod_v(flag, "{}")
    longer = ["--max-model-len", "8192"]
    own, added = {"name": "USER_FLAG", "value": "u"}, {"name": "C", "value": "3"}
    node = {"name": "INFERENCECACHE_NODE_IP", "value": "192.0.2.1"}
    theirs = [own | {"value": "x"}, node, added]
    nodes = {"suppressEnv": [node["name"]], "env": [node]}
    return [
        args(41, "added", pod_v(), {"args": longer}, *model, *config, hybrid, *longer),
        args(42, "kept", eager, {"args": ["--eager=false"]}, *model, "--eager", *config, hybrid),
        args(42, "not suppressed", eager, {"suppressArgs": ["--eager"]}, *model, "--eager", *config, hybrid),
        args(43, "suppressed", pod_v(), {"suppressArgs": [flag]}, *model, hybrid),
        args(44, "in place", pod_v(), {"args": [f"{flag}=9"]}, *model, f"{flag}=9", hybrid),
        args(45, "moved", pod_v(), {"suppressArgs": [flag], "args": [flag, "2"]}, *model, hybrid, flag, "2"),
        args(46, "changed", before, {"args": [flag, "3"]}, *model, flag, "3", hybrid),
        env(47, "variables", pod_v(), {"env": theirs}, own, node, HASH_SEED, FAIL_OPEN, added),
        env(48, "moved variable", pod_v(), nodes, own, HASH_SEED, FAIL_OPEN, node),
        args(49, "minus", pod_v(), {"args": ["--n", "-1"]}, *model, *config, hybrid, "--n", "-1"),
    ]


POD_CASES = (
    *_case_23_to_25(),
    *_case_26_and_27(),
    *_case_28_to_30(),
    *_case_31(),
    *_case_32_and_33(),
    *_case_34_to_37(),
    *_case_38(),
    *_case_41_to_49(),
)

SOURCES: list[tuple[Document, bool]] = [
    *(({"fieldRef": {"fieldPath": path}}, True) for path in ("metadata.uid", "status.podIPs")),
    ({"fieldRef": {"fieldPath": "metadata.annotations['a.b/c']", "apiVersion": "v1"}}, True),
    *(({"fieldRef": {"fieldPath": path}}, False) for path in ("", "nonsense", "metadata.labels")),
    *(({"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}, False) for key in ("", "a b", "/a")),
    ({"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v9"}}, False),
    ({"secretKeyRef": {"name": "s", "key": "k", "optional": True}}, True),
    ({"secretKeyRef": {"name": "s", "key": "a b"}}, False),
    ({"secretKeyRef": {"name": "", "key": "k"}}, False),
    ({"configMapKeyRef": {"name": "c", "key": "k"}}, True),
    ({"configMapKeyRef": {"key": "k"}}, False),
    ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, True),
    ({"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}, True),
    ({"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}, True),
    ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "3"}}, False),
    ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Mi"}}, False),
    ({"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}}, False),
]
"""Sources of a variable, and whether an API server takes a pod that has one."""
