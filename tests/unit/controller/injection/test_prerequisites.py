"""What an engine's command line must and must not say before a server is put beside it."""

from __future__ import annotations

import pytest

from tests.support.backends import change, hi_cache, node_local, pod_local
from tests.support.engine_pods import engine_pod, pod_v
from tests.unit.controller.injection.asking import SIDECAR, Document, stay, wire

BOTH = pytest.mark.parametrize("backend", [pod_local(), node_local()], ids=["pod", "node"])


@pytest.mark.rule("ADM-155", "ADM-156", "ADM-157", "ADM-158", "ADM-159", "ADM-W26")
@pytest.mark.parametrize(
    "args",
    [
        "-tp 2",
        "-tp=8",
        "--tensor-parallel-size=1",
        "--pipeline-parallel-size 1",
        "-pp=1 -dp 1",
        "--data-parallel-size=1",
        "--disable-hybrid-kv-cache-manager",
        "--disable-hybrid-kv-cache-manager --eager",
        "--kv-transfer-config {}",
        "--kv-transfer-config=-",
        "--kv-transfer-config -",
        "--data-parallel-backend mp",
    ],
)
@BOTH
def test_vllm_is_wired_as_one_rank_of_data_and_one_stage(args: str, backend: Document) -> None:
    wire(pod_v(*args.split()), backend)


@pytest.mark.rule("ADM-155", "ADM-156", "ADM-157", "ADM-158", "ADM-159", "ADM-248", "ADM-W26")
@pytest.mark.parametrize(
    "args",
    [
        "-tp 0",
        "-tp -2",
        "-tp two",
        pytest.param(f"-tp {'9' * 5000}", id="-tp endless"),
        "-tp",
        "-tp=",
        "-tp --eager",
        "-tp 2 -tp 2",
        "-tp 2 --tensor-parallel-size=2",
        "--pipeline-parallel-size=2",
        "-pp 0",
        "-pp",
        "-pp=",
        "-pp 1 -pp 1",
        "-pp 1 --pipeline-parallel-size 1",
        "-dp 2",
        "-dp=1.0",
        "--data-parallel-size",
        "--data-parallel-rank=0",
        "--data-parallel-rank 0",
        "--data-parallel-rank",
        "--data-parallel-start-rank=0",
        "--data-parallel-size-local 1",
        "--data-parallel-address=x",
        "--data-parallel-rpc-port 1",
        "--disable-hybrid-kv-cache-manager=true",
        "--disable-hybrid-kv-cache-manager true",
        "--disable-hybrid-kv-cache-manager FALSE",
        "--disable-hybrid-kv-cache-manager 0",
        "--disable-hybrid-kv-cache-manager --x --disable-hybrid-kv-cache-manager",
        "--kv-transfer-config",
        "--kv-transfer-config=",
        "--kv-transfer-config --eager",
        "--kv-transfer-config {} --kv-transfer-config={}",
    ],
)
@BOTH
def test_vllm_is_left_alone_with_what_a_server_cannot_serve_or_read(args: str, backend: Document) -> None:
    flag = args.split(maxsplit=1)[0].partition("=")[0]
    named = {"-tp": "-tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size"}
    message = stay(pod_v(*args.split()), backend)
    assert flag in message or named.get(flag, "?") in message


@pytest.mark.rule("ADM-149")
def test_what_is_in_the_command_counts_for_nothing() -> None:
    command = ["serve", "-dp", "2", "--kv-transfer-config", "{}"]
    assert wire(pod_v(command=command), pod_local())["spec"]["containers"][0]["command"] == command


@pytest.mark.rule("ADM-160", "ADM-W27")
@pytest.mark.parametrize(
    ("args", "chunk", "is_wired"),
    [
        ("--page-size 64", None, True),
        ("--page-size=256", None, True),
        ("--page-size=1", None, True),
        ("--page-size=96", 192, True),
        ("--page-size=96", None, False),
        ("--page-size=512", None, False),
        ("--page-size=64", 96, False),
        ("", None, False),
        ("--page-size", None, False),
        ("--page-size=", None, False),
        ("--page-size --eager", None, False),
        ("--page-size 64 --page-size=64", None, False),
        ("--page-size=0", None, False),
        ("--page-size=-64", None, False),
        ("--page-size=6.4e1", None, False),
    ],
)
def test_sglang_must_say_a_page_size_that_divides_a_chunk(
    args: str, chunk: int | None, is_wired: bool
) -> None:
    for make in (pod_local, node_local):
        backend = change(make("SGLang"), "spec.lmCache.chunkSizeTokens", chunk)
        pod = engine_pod(*args.split(), name="sglang")
        if is_wired:
            wire(pod, backend)
        else:
            assert "--page-size" in stay(pod, backend)


@pytest.mark.rule("ADM-154")
def test_a_topology_belongs_to_lmcache_and_has_a_server() -> None:
    strange = change(hi_cache(), "spec.lmCache", pod_local()["spec"]["lmCache"])
    assert "spec.lmCache.topology" in stay(engine_pod(name="sglang"), strange)
    for backend, block in ((pod_local(), "podLocal"), (node_local(), "nodeLocal")):
        for path in (block, f"{block}.server", f"{block}.server.port", f"{block}.server.image"):
            incomplete = change(backend, f"spec.lmCache.{path}", None)
            assert f"spec.lmCache.{block}.server" in stay(pod_v(), incomplete)


@pytest.mark.rule("ADM-148", "ADM-154", "ADM-W37")
def test_the_engine_is_the_container_of_its_name_or_the_only_one() -> None:
    alone = engine_pod("--model", "x", name="anything")
    assert "lmcache-mp-server" in str(wire(alone, pod_local()))
    crowd = change(alone, "spec.containers", [{"name": "a"}, {"name": "vllm"}, {"name": "sglang"}])
    wired = wire(crowd, pod_local())["spec"]["containers"]
    assert [bool(container.get("args")) for container in wired] == [False, True, False]
    nobody = change(alone, "spec.containers", [{"name": "a"}, {"name": "sglang"}])
    message = stay(change(nobody, "spec.initContainers", [{"name": "vllm"}]), pod_local())
    assert "a, sglang" in message
    assert "vllm" in message


@pytest.mark.rule("ADM-241")
def test_a_lone_engine_of_another_name_is_no_longer_found_beside_the_sidecar() -> None:
    backend = change(pod_local(), "spec.observation", {"modelID": "m"})
    once = wire(engine_pod("--model", "x", name="engine"), backend, sidecar=SIDECAR)
    assert "annotations" not in wire(once, backend, sidecar=SIDECAR)["metadata"]
