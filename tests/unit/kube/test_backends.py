"""What a CacheBackend means where it says nothing, or nothing that can be read."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.core.kube.backends import Backend

rule = pytest.mark.rule
MINUTE_NS = 60_000_000_000
GIVEN = {"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi"}}


def effective(name: str, **spec: Any) -> Any:
    return getattr(Backend({"kind": "CacheBackend", "spec": spec}), name)


@pytest.mark.parametrize(
    ("spec", "name", "value"),
    [
        pytest.param({}, "type", "LMCache", marks=rule("CRD-87")),
        pytest.param({"type": ""}, "type", "LMCache", marks=rule("CRD-87")),
        pytest.param({"type": "SGLangHiCache"}, "type", "SGLangHiCache", marks=rule("CRD-87")),
        pytest.param({}, "mode", "Offload", marks=rule("CRD-88")),
        pytest.param({"integration": {"mode": ""}}, "mode", "Offload", marks=rule("CRD-88")),
        pytest.param({"integration": {"mode": "EventsOnly"}}, "mode", "EventsOnly", marks=rule("CRD-88")),
        pytest.param({}, "role", "ReadWrite", marks=rule("CRD-89")),
        pytest.param({"integration": {"role": ""}}, "role", "ReadWrite", marks=rule("CRD-89")),
        pytest.param({"integration": {"role": "ReadOnly"}}, "role", "ReadOnly", marks=rule("CRD-89")),
        pytest.param({}, "fail_open", True, marks=rule("CRD-90")),
        pytest.param({"integration": {}}, "fail_open", True, marks=rule("CRD-90")),
        pytest.param({"integration": {"failOpen": False}}, "fail_open", False, marks=rule("CRD-90")),
        pytest.param({}, "runtime_id", "", marks=rule("CRD-91")),
        pytest.param({"runtime": "VLLM"}, "runtime_id", "vllm", marks=rule("CRD-91")),
        pytest.param({"runtime": "SGLang"}, "runtime_id", "sglang", marks=rule("CRD-91")),
        pytest.param({"observation": {"modelID": "m"}}, "remote_storage", None, marks=rule("CRD-92")),
        pytest.param({}, "chunk_tokens", 256, marks=rule("CRD-93")),
        pytest.param({"lmCache": {}}, "chunk_tokens", 256, marks=rule("CRD-93")),
        pytest.param({"lmCache": {"chunkSizeTokens": 512}}, "chunk_tokens", 512, marks=rule("CRD-93")),
        pytest.param({}, "model_id", "", marks=rule("CRD-95")),
        pytest.param({"observation": {"modelID": "m"}}, "model_id", "m", marks=rule("CRD-95")),
        pytest.param({}, "allow_cross_namespace", False, marks=rule("CRD-99")),
        pytest.param({"allowCrossNamespace": True}, "allow_cross_namespace", True, marks=rule("CRD-99")),
        pytest.param({}, "match_labels", {}, marks=rule("CRD-100")),
        pytest.param({"engineSelector": {}}, "match_labels", {}, marks=rule("CRD-100")),
        pytest.param({"engineSelector": {"matchLabels": {}}}, "match_labels", {}, marks=rule("CRD-100")),
    ],
)
def test_what_is_absent_or_empty_has_its_effective_value(spec: dict[str, Any], name: str, value: Any) -> None:
    assert effective(name, **spec) == value


@pytest.mark.rule("CRD-94", "CRD-W18", "CRD-13")
@pytest.mark.parametrize(
    ("observation", "minutes"),
    [
        (None, 5),
        ({}, 5),
        ({"firstEventTimeout": "0s"}, 5),
        ({"firstEventTimeout": "-1h"}, 5),
        ({"firstEventTimeout": "1d"}, 5),
        ({"firstEventTimeout": "1h30m"}, 90),
        ({"firstEventTimeout": "1.5h"}, 90),
        ({"firstEventTimeout": "5m0s"}, 5),
    ],
)
def test_the_first_event_is_waited_for_as_long_as_is_written_and_more_than_nothing(
    observation: dict[str, str] | None, minutes: int
) -> None:
    assert effective("first_event_timeout_ns", observation=observation) == minutes * MINUTE_NS


@pytest.mark.rule("CRD-96")
@pytest.mark.parametrize("redis", [None, {}, {"image": ""}])
def test_a_managed_redis_has_an_image(redis: dict[str, str] | None) -> None:
    storage = {"provider": "Redis", "ownership": "Managed", "redis": redis}
    assert effective("redis_image", remoteStorage=storage) == "docker.io/library/redis:7.4-alpine"


@pytest.mark.rule("CRD-97", "CRD-98", "CRD-W19")
@pytest.mark.parametrize(
    ("redis", "resources", "budget"),
    [
        (None, GIVEN, 6_871_947_674),
        ({}, GIVEN, 6_871_947_674),
        ({"resources": {"limits": {"memory": "4Gi"}}}, {"limits": {"memory": "4Gi"}}, 3_435_973_837),
        ({"resources": {}}, {}, 6_871_947_674),
        ({"resources": {"requests": {"memory": "4Gi"}}}, {"requests": {"memory": "4Gi"}}, 6_871_947_674),
        ({"resources": {"limits": {"memory": 0}}}, {"limits": {"memory": 0}}, 6_871_947_674),
        ({"resources": {"limits": {"memory": "much"}}}, {"limits": {"memory": "much"}}, 6_871_947_674),
        ({"resources": {"limits": {"memory": 11}}}, {"limits": {"memory": 11}}, 9),
    ],
)
def test_cached_blocks_get_four_fifths_of_the_memory_limit(
    redis: dict[str, Any] | None, resources: dict[str, Any], budget: int
) -> None:
    storage = {"provider": "Redis", "ownership": "Managed", "redis": redis}
    assert effective("redis_resources", remoteStorage=storage) == resources
    assert effective("redis_keyspace_bytes", remoteStorage=storage) == budget
