"""What is read off engine pods: their kernels and whether they crash."""

from __future__ import annotations

import pytest

from inferencecache.controller.backend.advisories import engine_compatibility
from inferencecache.controller.backend.kernel_health import kernel_health
from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.kinds import Document
from tests.support.backend_passes import Passes, checked, engine, of_case, stamps
from tests.support.backends import change, hi_cache, pod_local

rule = pytest.mark.rule
BACKEND = Backend(of_case(pod_local()))
FAILED: Document = {"message": "FAIL: no c_ops", "exitCode": 0}
CRASHES = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}


@rule("CTL-139")
def test_only_pods_of_the_backend_with_a_check_count() -> None:
    unselected = checked("a", FAILED)
    unselected["metadata"]["labels"] = {}
    unstamped = checked("b", FAILED)
    unstamped["metadata"]["annotations"] = stamps(uid="u0")
    unchecked = engine("c", init_statuses=[{"name": "lmcache-kernel-check", "state": {"terminated": FAILED}}])
    assert kernel_health(BACKEND, [unselected, unstamped, unchecked]) is None
    old = checked("d", FAILED)
    old["metadata"]["annotations"] = stamps(generation=7)
    health = kernel_health(BACKEND, [old])
    assert health is not None
    assert health.verdict.reason == "KernelLoadFailed"


@rule("CTL-140")
def test_the_last_end_counts_while_a_check_runs_again() -> None:
    pod = checked("a")
    pod["status"]["initContainerStatuses"][-1]["lastState"] = {"terminated": FAILED}
    health = kernel_health(BACKEND, [pod])
    assert health is not None
    assert health.verdict.reason == "KernelLoadFailed"


@rule("CTL-131", "CTL-140", "CTL-141")
@pytest.mark.parametrize(
    ("ends", "status", "reason"),
    [
        ([{"message": "OK", "exitCode": 0}], "True", "KernelsHealthy"),
        ([{"message": "OK", "exitCode": 0}, None], "Unknown", "KernelCheckPending"),
        ([None, {"message": "", "exitCode": 137, "reason": "OOMKilled"}], "Unknown", "KernelCheckError"),
        ([None, {"exitCode": 0}], "Unknown", "KernelCheckError"),
        ([{"message": "OKAY", "exitCode": 0}], "Unknown", "KernelCheckError"),
        ([None, {"exitCode": 2}, FAILED], "False", "KernelLoadFailed"),
        ([{"message": f"FAIL: {'x' * 600}", "exitCode": 1}], "False", "KernelLoadFailed"),
    ],
)
def test_kernels_are_judged_by_the_worst(ends: list[Document | None], status: str, reason: str) -> None:
    pods = [checked(f"p{number}", end) for number, end in enumerate(ends)]
    health = kernel_health(BACKEND, pods)
    assert health is not None
    assert health.verdict[:2] == (status, reason)
    assert len(health.verdict.message) <= 512
    assert not health.is_strict


@rule("CTL-142")
def test_only_a_failing_pod_of_its_own_is_strict() -> None:
    strict_but_fine = checked("a", {"message": "OK", "exitCode": 0}, strict=True)
    lenient = checked("b", FAILED)
    health = kernel_health(BACKEND, [strict_but_fine, lenient])
    assert health is not None
    assert not health.is_strict
    health = kernel_health(BACKEND, [lenient, checked("c", FAILED | {"exitCode": 1}, strict=True)])
    assert health is not None
    assert health.is_strict


@rule("CTL-142")
async def test_strict_kernels_gate_a_backend_in_host_memory_whatever_else_it_is() -> None:
    passes = Passes(of_case(pod_local()), checked("a", FAILED | {"exitCode": 1}, strict=True))
    passes.put_pods(engine("b", served=False))
    await passes.settle()
    assert passes.verdicts["ConnectorReady"] == "False/MPServersNotReady"
    assert passes.verdicts["Ready"] == "False/EngineKernelDegraded"


async def test_hicache_has_no_kernels_to_check() -> None:
    passes = Passes(of_case(hi_cache()), checked("a", FAILED))
    await passes.run()
    assert "EngineKernelsHealthy" not in passes.verdicts


@rule("CTL-146", "CTL-147")
@pytest.mark.parametrize(
    ("containers", "crashing", "found"),
    [
        (["vllm"], "vllm", "vllm"),
        (["main"], "main", "main"),
        (["main", "kvevent-subscriber"], "main", "main"),
        (["main", "kvevent-subscriber"], "kvevent-subscriber", ""),
        (["main", "other"], "main", ""),
        (["vllm", "other"], "other", ""),
        (["vllm", "other"], "vllm", "vllm"),
    ],
)
def test_an_engine_that_crashes_again_and_again_is_told_of(
    containers: list[str], crashing: str, found: str
) -> None:
    pod = engine("p", containers=containers, statuses=[{"name": crashing} | CRASHES], labels={})
    verdict = engine_compatibility(BACKEND, [engine("a"), pod])
    if not found:
        assert verdict is None
        return
    assert verdict is not None
    assert verdict[:2] == ("False", "InjectedEngineCrashLooping")
    assert f"container {found} of pod p" in verdict.message
    assert "hybrid-attention" in verdict.message


@rule("CTL-146")
def test_an_engine_that_was_not_wired_for_the_backend_is_not_told_of() -> None:
    crashing = [{"name": "vllm"} | CRASHES]
    assert engine_compatibility(BACKEND, [engine(statuses=crashing, marks=stamps(uid="u0"))]) is None
    restarting = [{"name": "vllm", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert engine_compatibility(BACKEND, [engine(statuses=restarting)]) is None


@rule("CTL-146", "CTL-149", "CTL-211")
async def test_a_crash_loop_is_told_once_and_gates_nothing() -> None:
    unselected = engine("x", statuses=[{"name": "vllm"} | CRASHES], labels={})
    passes = Passes(of_case(pod_local()), engine(), unselected)
    passes.observe_event("2026-03-01T11:59:00Z")
    await passes.settle(3)
    assert passes.verdicts["EngineCompatibility"] == "False/InjectedEngineCrashLooping"
    assert passes.verdicts["Ready"] == "True/KVEventsObserved"
    assert passes.kube.events().count(("Warning", "InjectedEngineCrashLooping")) == 1
    passes.put_pods(engine("x", labels={}))
    await passes.run()
    assert "EngineCompatibility" not in passes.verdicts


def test_the_engine_of_sglang_goes_by_its_name() -> None:
    sglang = Backend(change(of_case(pod_local("SGLang")), "metadata.uid", "u1"))
    pod = engine(containers=["sglang", "x"], statuses=[{"name": "sglang"} | CRASHES])
    assert engine_compatibility(sglang, [pod]) is not None
