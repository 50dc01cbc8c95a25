"""LMCache with a server in the pod or on the node: what engine, server and gate get."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path

import pytest

from inferencecache.controller.injection.mp_server import gibibytes_text, quantity_text
from tests.support.backends import IMAGE, change, node_local, pod_local
from tests.support.engine_pods import (
    FAIL_OPEN,
    NODE_IP,
    SECURITY,
    engine_of,
    engine_pod,
    gate,
    node_local_wired,
    pod_local_wired,
    pod_v,
    sglang_wired,
    shm_volume,
    wired,
    with_init,
    with_volume,
)
from tests.unit.controller.injection.asking import SIDECAR, Document, stay, wire

NODE_FOLDER: Document = {"path": "/dev/shm/inference-cache/u-1", "type": "DirectoryOrCreate"}


def part_of(pod: Document, key: str, name: str) -> Document:
    found: Document = next(part for part in pod["spec"][key] if part["name"] == name)
    return found


def transfer_config_of(pod: Document) -> Document:
    args = engine_of(pod)["args"]
    config: Document = json.loads(args[args.index("--kv-transfer-config") + 1])
    return config


# ------------------------------------------------------------------------------- the engine's side


@pytest.mark.rule("ADM-166", "ADM-170", "ADM-173", "ADM-W23")
def test_a_transfer_config_of_the_authors_is_replaced_where_it_stands() -> None:
    pod = pod_v("--kv-transfer-config={}", "--eager")
    expected = pod_local_wired(pod_v(), "--model", "x")
    args = engine_of(expected)["args"]
    engine_of(expected)["args"] = [*args[:4], "--eager", args[4]]
    assert wire(pod, pod_local()) == expected


@pytest.mark.rule("ADM-166", "ADM-153")
def test_hash_seed_and_fail_open_come_last_and_once() -> None:
    own = [{"name": "PYTHONHASHSEED", "value": "7"}, {"name": "A", "value": "1"}, {"name": "PYTHONHASHSEED"}]
    env = engine_of(wire(pod_v(env=own), pod_local()))["env"]
    assert env == [{"name": "A", "value": "1"}, {"name": "PYTHONHASHSEED", "value": "0"}, FAIL_OPEN]


@pytest.mark.rule("ADM-171", "ADM-167", "ADM-168", "ADM-169")
@pytest.mark.parametrize("runtime", ["VLLM", "SGLang"])
def test_engines_are_told_whether_they_may_run_without_the_store(runtime: str) -> None:
    for make in (pod_local, node_local):
        for value, text in ((None, "true"), (True, "true"), (False, "false")):
            backend = change(make(runtime), "spec.integration.failOpen", value)
            pod = wire(engine_pod("--page-size=64", name=runtime.lower()), backend)
            assert {"name": "INFERENCECACHE_FAIL_OPEN", "value": text} in engine_of(pod)["env"]


@pytest.mark.rule("ADM-170")
@pytest.mark.parametrize(
    ("role", "kv_role"),
    [(None, "kv_both"), ("ReadWrite", "kv_both"), ("ReadOnly", "kv_consumer"), ("WriteOnly", "kv_producer")],
)
def test_the_role_of_the_connector_is_that_of_the_backend(role: str | None, kv_role: str) -> None:
    pod = wire(pod_v(), change(pod_local(), "spec.integration.role", role))
    assert transfer_config_of(pod)["kv_role"] == kv_role


@pytest.mark.rule("ADM-168", "ADM-172", "ADM-187", "ADM-179")
def test_sglang_serves_metrics_when_somebody_reads_them() -> None:
    pod = engine_pod("--page-size=64", name="sglang")
    backend = pod_local("SGLang")
    observed = change(backend, "spec.observation", {"modelID": "m"})
    assert wire(pod, backend, sidecar=SIDECAR) == sglang_wired(pod, "--page-size=64")
    assert wire(pod, observed) == sglang_wired(pod, "--page-size=64")
    args = engine_of(wire(pod, observed, sidecar=SIDECAR))["args"]
    assert args == [*engine_of(sglang_wired(pod, "--page-size=64"))["args"], "--enable-metrics"]
    there = copy.deepcopy(pod)
    there["spec"]["containers"].append({"name": "kvevent-subscriber"})
    assert "--enable-metrics" in engine_of(wire(there, observed, sidecar=SIDECAR))["args"]


@pytest.mark.rule("ADM-169", "ADM-194", "ADM-195", "ADM-196")
def test_sglang_on_a_shared_server_reads_what_the_gate_writes() -> None:
    pod = engine_pod("--page-size=64", name="sglang")
    path = "/var/run/inference-cache/lmcache-node"
    config = {"name": "lmcache-node-config", "mountPath": path}
    shm = {"name": "lmcache-node-shm", "mountPath": "/dev/shm"}
    engine = {
        "args": ["--page-size=64", "--enable-lmcache", "--lmcache-config-file", f"{path}/client.yaml"],
        "env": [NODE_IP, {"name": "LMCACHE_USE_EXPERIMENTAL", "value": "True"}, FAIL_OPEN],
        "volumeMounts": [config, shm],
    }
    volumes = (
        {"name": "lmcache-node-config", "emptyDir": {}},
        {"name": "lmcache-node-shm", "hostPath": NODE_FOLDER},
    )
    init = (gate(f"{path}/client.yaml", volumeMounts=[config]),)
    assert wire(pod, node_local("SGLang")) == wired(pod, engine, init=init, volumes=volumes)


# ------------------------------------------------------------------------------- the server in the pod


@pytest.mark.rule("ADM-174", "ADM-178", "ADM-181", "ADM-182", "ADM-183", "ADM-184", "ADM-131", "ADM-238")
def test_the_server_is_a_native_sidecar_after_the_authors_init_containers() -> None:
    pod = with_init(pod_v(), "own")
    backend = change(pod_local(), "spec.lmCache.podLocal.server.image", f"  {IMAGE} ")
    assert wire(pod, backend) == pod_local_wired(pod, "--model", "x")


@pytest.mark.rule("ADM-184")
def test_the_server_gets_the_resources_of_the_spec_and_no_gpu() -> None:
    resources = {"limits": {"cpu": "2", "memory": "9Gi"}, "requests": {"cpu": "2", "memory": "6Gi"}}
    backend = change(pod_local(), "spec.lmCache.podLocal.server.resources", resources)
    assert part_of(wire(pod_v(), backend), "initContainers", "lmcache-mp-server")["resources"] == resources


@pytest.mark.rule("ADM-176", "ADM-W24")
@pytest.mark.parametrize(
    ("capacity", "text"),
    [
        ("4Gi", "4"),
        (4294967296, "4"),
        ("1536Mi", "1.5"),
        ("1Mi", "0.0009765625"),
        ("1Ki", "0.00000095367431640625"),
        ("10G", "9.313225746154785"),
        ("1Ti", "1024"),
        ("0.5Gi", "0.5"),
        ("1", "0.0000000009313225746154785"),
    ],
)
def test_the_capacity_is_told_in_gib_without_exponent(capacity: str | int, text: str) -> None:
    assert gibibytes_text(capacity) == text
    assert "e" not in text


@pytest.mark.rule("ADM-185")
@pytest.mark.parametrize(
    ("size", "text"),
    [(5 * 2**30, "5Gi"), (2560 * 2**20, "2560Mi"), (2**40, "1Ti"), (1025, "1025"), (1024, "1Ki")],
)
def test_sizes_are_written_as_the_api_writes_them(size: int, text: str) -> None:
    assert quantity_text(size) == text


@pytest.mark.rule("ADM-185", "ADM-W24")
@pytest.mark.parametrize(("capacity", "size"), [("4Gi", "5Gi"), ("1536Mi", "2560Mi"), ("3G", "4073741824")])
def test_shared_memory_has_room_for_the_capacity_and_one_gib(capacity: str, size: str) -> None:
    backend = change(pod_local(), "spec.lmCache.podLocal.server.l1Capacity", capacity)
    volume = part_of(wire(pod_v(), backend), "volumes", "lmcache-mp-shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


@pytest.mark.rule("ADM-186", "ADM-W29", "ADM-250")
@pytest.mark.parametrize(
    ("volume", "mount", "message"),
    [
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "5Gi"}}, {}, ""),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"}}, {"mountPath": "/dev/shm/"}, ""),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": 5368709119}}, {}, "sizeLimit"),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"}}, {"subPathExpr": "$(X)"}, "subPathExpr"),
        ({"emptyDir": {"medium": "HugePages", "sizeLimit": "6Gi"}}, {}, "medium"),
        ({"hostPath": {"path": "/dev/shm"}}, {}, "medium"),
        ({"name": "another", "emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"}}, {}, "medium"),
    ],
    ids=str,
)
def test_shared_memory_of_the_authors_is_used_when_it_will_do(
    volume: Document, mount: Document, message: str
) -> None:
    pod = with_volume(pod_v(), volume, mount)
    if message:
        assert message in stay(pod, pod_local())
        return
    spec = wire(pod, pod_local())["spec"]
    assert spec["volumes"] == pod["spec"]["volumes"]
    assert engine_of({"spec": spec})["volumeMounts"] == engine_of(pod)["volumeMounts"]
    server = part_of({"spec": spec}, "initContainers", "lmcache-mp-server")
    assert server["volumeMounts"] == [{"name": "own", "mountPath": "/dev/shm"}]


@pytest.mark.rule("ADM-188", "ADM-W30", "ADM-250")
def test_reserved_names_of_somebody_else_leave_the_pod_alone() -> None:
    sglang, args = pod_local("SGLang"), ("--page-size=64",)
    engine = engine_pod(*args, name="sglang")
    for name in ("lmcache-mp-shm", "lmcache-mp-config"):
        assert name in stay(change(engine, "spec.volumes", [{"name": name, "emptyDir": {}}]), sglang)
    path = "/var/run/inference-cache/lmcache"
    mounting = copy.deepcopy(engine)
    engine_of(mounting)["volumeMounts"] = [{"name": "own", "mountPath": path}]
    assert path in stay(mounting, sglang)
    assert "lmcache-mp-server" in stay(with_init(engine, "lmcache-mp-server"), sglang)


@pytest.mark.rule("ADM-188")
def test_a_reserved_name_is_free_where_nothing_of_that_name_would_be_added() -> None:
    pod = with_volume(pod_v(), {"emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"}}, {})
    for name in ("lmcache-mp-shm", "lmcache-mp-config"):
        pod["spec"]["volumes"].append({"name": name, "emptyDir": {}})
    wire(pod, pod_local())


@pytest.mark.rule("ADM-189", "ADM-240")
@pytest.mark.parametrize("marker", [[], [{"name": "INFERENCECACHE_MP_SERVER", "value": "false"}]])
def test_a_server_without_our_mark_is_somebody_elses(marker: list[Document]) -> None:
    assert "lmcache-mp-server" in stay(with_init(pod_v(), "lmcache-mp-server", env=marker), pod_local())


@pytest.mark.rule("ADM-189", "ADM-240")
@pytest.mark.parametrize("runtime", ["VLLM", "SGLang"])
def test_a_changed_backend_changes_the_wiring_in_place(runtime: str) -> None:
    pod = with_init(engine_pod("--page-size=64", name=runtime.lower()), "own")
    old = pod_local(runtime)
    new = change(old, "spec.lmCache.podLocal.server.l1Capacity", "8Gi")
    new = change(new, "spec.lmCache.podLocal.server.port", 6501)
    new = change(new, "metadata.generation", 4)
    before = with_init(wire(pod, old), "later")
    after = wire(before, new)
    fresh = wire(pod, new)
    assert [init["name"] for init in after["spec"]["initContainers"]] == ["own", "lmcache-mp-server", "later"]
    after["spec"]["initContainers"].pop()
    assert after == fresh
    assert shm_volume("9Gi") in after["spec"]["volumes"]


@pytest.mark.rule("ADM-179")
def test_the_start_script_writes_the_client_file_and_becomes_the_server(tmp_path: Path) -> None:
    server = part_of(
        wire(engine_pod("--page-size=64", name="sglang"), pod_local("SGLang")),
        "initContainers",
        "lmcache-mp-server",
    )
    script, name, _, *rest = server["args"]
    values, command = rest[:2], rest[2:]
    assert (command[0], command[1]) == ("lmcache", "server")
    target = tmp_path / "a client's file.yaml"
    ran = subprocess.run(
        [*server["command"], script, name, str(target), *values, "printf", "%s|", "a b", "$(x)", '"'],
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert ran.stdout == 'a b|$(x)|"|'
    assert target.read_text() == 'chunk_size: 256\nmp_host: "127.0.0.1"\nmp_port: 6500\n'


@pytest.mark.rule("ADM-179")
def test_the_start_script_starts_nothing_when_it_cannot_write() -> None:
    pod = wire(engine_pod("--page-size=64", name="sglang"), pod_local("SGLang"))
    server = part_of(pod, "initContainers", "lmcache-mp-server")
    script, name = server["args"][:2]
    ran = subprocess.run(
        [*server["command"], script, name, "/no/such/folder/file", "1", "2", "echo", "started"],
        check=False,
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert ran.returncode != 0
    assert ran.stdout == ""


# ------------------------------------------------------------------------------- the gate


@pytest.mark.rule("ADM-167", "ADM-190", "ADM-191", "ADM-192", "ADM-195", "ADM-196", "ADM-199", "ADM-238")
def test_the_gate_follows_the_authors_init_containers() -> None:
    pod = with_init(pod_v(), "own")
    assert wire(pod, node_local()) == node_local_wired(pod, "--model", "x")


@pytest.mark.rule("ADM-190", "ADM-250")
@pytest.mark.parametrize(
    ("volume", "mount", "is_wired"),
    [
        ({"hostPath": NODE_FOLDER}, {}, True),
        ({"hostPath": NODE_FOLDER}, {"readOnly": True}, False),
        ({"hostPath": NODE_FOLDER}, {"subPath": "s"}, False),
        ({"hostPath": NODE_FOLDER}, {"subPathExpr": "$(A)"}, False),
        ({"hostPath": NODE_FOLDER | {"path": "/dev/shm"}}, {}, False),
        ({"hostPath": NODE_FOLDER | {"type": "Directory"}}, {}, False),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"}}, {}, False),
        ({"name": "another", "hostPath": NODE_FOLDER}, {}, False),
    ],
    ids=str,
)
def test_what_the_author_mounts_must_be_the_nodes_folder(
    volume: Document, mount: Document, is_wired: bool
) -> None:
    pod = with_volume(pod_v(), volume, mount)
    if is_wired:
        spec = wire(pod, node_local())["spec"]
        assert spec["volumes"] == pod["spec"]["volumes"]
        assert engine_of({"spec": spec})["volumeMounts"] == engine_of(pod)["volumeMounts"]
    else:
        assert "/dev/shm" in stay(pod, node_local())


@pytest.mark.rule("ADM-190", "ADM-194", "ADM-198", "ADM-250")
def test_reserved_names_of_the_gate_of_somebody_else_leave_the_pod_alone() -> None:
    sglang = node_local("SGLang")
    engine = engine_pod("--page-size=64", name="sglang")
    for name in ("lmcache-node-shm", "lmcache-node-config"):
        assert name in stay(change(engine, "spec.volumes", [{"name": name, "emptyDir": {}}]), sglang)
    path = "/var/run/inference-cache/lmcache-node"
    mounting = copy.deepcopy(engine)
    engine_of(mounting)["volumeMounts"] = [{"name": "own", "mountPath": path}]
    assert path in stay(mounting, sglang)
    assert "lmcache-node-local-gate" in stay(with_init(engine, "lmcache-node-local-gate"), sglang)


@pytest.mark.rule("ADM-191", "ADM-250")
@pytest.mark.parametrize("uid", ["", ".", "..", "../x", "a/b", "ü", "u" * 225])
def test_a_uid_that_cannot_name_a_file_leaves_the_pod_alone(uid: str) -> None:
    assert "uid" in stay(pod_v(), change(node_local(), "metadata.uid", uid))
    for legal in ("u" * 224, "U.1-a_b", "..."):
        assert wire(pod_v(), change(node_local(), "metadata.uid", legal))


@pytest.mark.rule("ADM-193")
def test_the_nodes_address_by_the_author_must_be_the_nodes_address() -> None:
    stored = copy.deepcopy(NODE_IP)
    stored["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    for own in (NODE_IP, stored):
        env = engine_of(wire(pod_v(env=[own]), node_local()))["env"]
        assert env[0] == own
        assert len(env) == 3
    fixed = {"name": "INFERENCECACHE_NODE_IP", "value": "192.0.2.1"}
    assert "INFERENCECACHE_NODE_IP" in stay(pod_v(env=[fixed]), node_local())
    marker = [{"name": "INFERENCECACHE_NODE_LOCAL_GATE", "value": "true"}]
    ours = with_init(pod_v(env=[fixed]), "lmcache-node-local-gate", env=marker)
    assert engine_of(wire(ours, node_local()))["env"][0] == NODE_IP


@pytest.mark.rule("ADM-198", "ADM-240")
def test_a_gate_of_ours_is_replaced_where_it_stands() -> None:
    old = wire(pod_v(), node_local())
    new = change(node_local(), "spec.lmCache.nodeLocal.server.httpPort", 18081)
    new = change(new, "metadata.generation", 4)
    after = wire(with_init(old, "later"), new)
    assert [init["name"] for init in after["spec"]["initContainers"]] == ["lmcache-node-local-gate", "later"]
    after["spec"]["initContainers"].pop()
    assert after == wire(pod_v(), new)


@pytest.mark.rule("ADM-183", "ADM-195")
def test_neither_server_nor_gate_can_become_more_than_they_are() -> None:
    for backend in (pod_local(), node_local()):
        (added,) = wire(pod_v(), backend)["spec"]["initContainers"]
        assert added["securityContext"] == SECURITY
