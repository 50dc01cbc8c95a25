"""Each precondition broken alone gives its own finding, which names what to change."""

from __future__ import annotations

import pytest

from inferencecache.cli.doctor.checks.engines import check_engines
from inferencecache.cli.doctor.facts import (
    EngineFacts,
    EnginePage,
    EngineSpec,
    SidecarPage,
    Unreachable,
)
from tests.support.doctor_facts import codes, engine

SERVING = EnginePage(block_size=16, prefix_caching=True, served=10)
REPORTING = SidecarPage(block_size=16, messages=5, stored=5, tracked_blocks=9)


@pytest.mark.parametrize(
    ("broken", "code", "fix"),
    [
        (engine(sidecar=REPORTING._replace(block_size=32)), "EN001", "--engine-block-size"),
        (
            engine(page=SERVING._replace(block_size=32), sidecar=SidecarPage(messages=1)),
            "EN001",
            "--page-size",
        ),
        (engine(sidecar=SidecarPage()), "EN003", "--kv-events-config"),
        (engine(page=SERVING._replace(prefix_caching=False)), "EN004", "--no-enable-prefix-caching"),
        (engine(spec=EngineSpec("vllm", prefix_caching=False), page=None), "EN004", "--disable-radix-cache"),
        (
            engine(sidecar=SidecarPage(messages=9, ignored_groups=9)),
            "EN005",
            "--disable-hybrid-kv-cache-manager",
        ),
        (engine(sidecar=REPORTING._replace(nameless_adapters=3)), "EN006", "--lora-adapter-names"),
        (engine(spec=EngineSpec("vllm", (0, 15, 1), adapters=True)), "EN006", "0.16"),
        (engine(spec=EngineSpec("sglang", (0, 5, 22), adapters=True)), "EN006", "0.5.23"),
        (EngineFacts("pod/a/b", EngineSpec("vllm", events=False)), "EN003", "enable_kv_cache_events"),
    ],
)
def test_a_broken_precondition_names_its_fix(broken: EngineFacts, code: str, fix: str) -> None:
    findings = [*check_engines((broken,), {"r1": 16})]
    assert codes(findings) == [code]
    assert fix in findings[0].message


def test_a_healthy_engine_is_said_to_be_one() -> None:
    assert codes([*check_engines((engine(),), {"r1": 16, "r2": 16})]) == ["EN007"]


def test_a_router_of_another_block_size_is_named() -> None:
    (finding,) = check_engines((engine(),), {"r1": 16, "r2": 64})
    assert (finding.code, "r2 64" in finding.message, "r1" in finding.message) == ("EN001", True, False)


def test_an_idle_engine_without_events_is_healthy() -> None:
    idle = engine(page=SERVING._replace(served=0), sidecar=SidecarPage())
    assert codes([*check_engines((idle,), {"r1": 16})]) == ["EN007"]


def test_groups_that_are_left_out_beside_those_that_count_are_healthy() -> None:
    hybrid = engine(sidecar=REPORTING._replace(ignored_groups=100))
    assert codes([*check_engines((hybrid,), {"r1": 16})]) == ["EN007"]


def test_adapters_of_a_release_that_names_them_are_healthy() -> None:
    named = engine(spec=EngineSpec("vllm", (0, 16, 0), adapters=True))
    assert codes([*check_engines((named,), {})]) == ["EN007"]


def sharing(name: str, **changed: object) -> EngineFacts:
    spec = EngineSpec("vllm", block_size=16, hash_algorithm="sha256", hash_seed="0", store="redis:6379")
    return EngineFacts(name, spec._replace(**changed), SERVING._replace(block_size=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"block_size": 32}, "block size 32 against 16"),
        ({"hash_seed": "7"}, "hash seed 7 against 0"),
        ({"hash_algorithm": "builtin"}, "hash algorithm builtin against sha256"),
        ({"hash_seed": None}, "hash seed not set"),
    ],
)
def test_engines_of_one_store_that_differ_share_nothing(changed: dict[str, object], what: str) -> None:
    findings = [*check_engines((sharing("a"), sharing("b", **changed)), {})]
    assert codes(findings) == ["EN007", "EN002"]
    assert what in findings[1].message
    assert "PYTHONHASHSEED" in findings[1].message


def test_an_engine_of_which_little_is_known_hides_no_difference() -> None:
    engines = (sharing("a", hash_algorithm=None), sharing("b"), sharing("c", hash_algorithm="builtin"))
    findings = [*check_engines(engines, {})]
    assert codes(findings) == ["EN007", "EN007", "EN002"]
    assert "builtin against sha256 of b" in findings[2].message


def test_engines_of_different_stores_may_differ() -> None:
    apart = (sharing("a"), sharing("b", store="other:6379", block_size=32))
    assert codes([*check_engines(apart, {})]) == ["EN007", "EN007"]


def test_what_could_not_be_read_is_not_called_healthy() -> None:
    unread = engine(page=Unreachable("403"), sidecar=Unreachable("403"))
    findings = [*check_engines((unread,), {"r1": 16})]
    assert codes(findings) == ["EN008"]
    assert "pods/proxy" in findings[0].message


def test_nothing_is_said_of_an_engine_that_nobody_asked() -> None:
    assert [*check_engines((EngineFacts("pod/a/b", EngineSpec("vllm")),), {"r1": 16})] == []
