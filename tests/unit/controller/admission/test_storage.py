"""Remote storage: who runs it, where it is, and which Redis features there are."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.endpoints import namespace_of_endpoint, problem_of_endpoint
from tests.support.backends import REDIS, Document, hi_cache, node_local, pod_local
from tests.support.judging import Found, changed, details, judged

rule = pytest.mark.rule
STORAGE = "spec.remoteStorage"
PASSWORD = f"{STORAGE}.redis.authentication.password"
USERNAME = f"{STORAGE}.redis.authentication.username"
EXTERNAL = {"provider": "Redis", "ownership": "External", "endpoint": "r.example:6379"}
SECRET = {"name": "s", "key": "k"}


def storing(storage: Document, **more: Any) -> Document:
    return changed(pod_local(), {STORAGE: storage | more})


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        pytest.param({"ownership": "Managed"}, [("Required", f"{STORAGE}.provider")], marks=rule("ADM-28")),
        pytest.param({"provider": "Redis"}, [("Required", f"{STORAGE}.ownership")], marks=rule("ADM-29")),
        pytest.param(
            REDIS | {"endpoint": "r:1"}, [("Forbidden", f"{STORAGE}.endpoint")], marks=rule("ADM-30")
        ),
        pytest.param(REDIS | {"endpoint": "  "}, [], marks=rule("ADM-30")),
        pytest.param(
            EXTERNAL | {"endpoint": " "}, [("Required", f"{STORAGE}.endpoint")], marks=rule("ADM-31")
        ),
        pytest.param(
            EXTERNAL | {"endpoint": "r"}, [("Invalid", f"{STORAGE}.endpoint")], marks=rule("ADM-32")
        ),
        pytest.param(
            EXTERNAL | {"workload": {}}, [("Forbidden", f"{STORAGE}.workload")], marks=rule("ADM-33")
        ),
        pytest.param(
            EXTERNAL | {"redis": {"image": "r:7"}},
            [("Forbidden", f"{STORAGE}.redis.image")],
            marks=rule("ADM-35"),
        ),
        pytest.param(EXTERNAL | {"redis": {"image": " "}}, [], marks=rule("ADM-35")),
        pytest.param(
            EXTERNAL | {"redis": {"resources": {}}},
            [("Forbidden", f"{STORAGE}.redis.resources")],
            marks=rule("ADM-36"),
        ),
        pytest.param(REDIS, [], marks=rule("ADM-37")),
        pytest.param(EXTERNAL, [], marks=rule("ADM-37")),
        pytest.param(
            REDIS | {"redis": {"tls": {"caCertificate": SECRET}}},
            [("Forbidden", f"{STORAGE}.redis.tls")],
            marks=rule("ADM-66"),
        ),
        pytest.param(
            REDIS | {"redis": {"database": 0}},
            [("Forbidden", f"{STORAGE}.redis.database")],
            marks=rule("ADM-67"),
        ),
    ],
)
def test_ownership_decides_which_settings_there_are(storage: Document, expected: Found) -> None:
    assert judged(changed(pod_local(), {STORAGE: storage})) == expected


@rule("ADM-34", "ADM-98")
def test_redis_settings_are_for_redis_and_other_providers_are_unknown() -> None:
    document = storing(REDIS, provider="Mooncake", redis={})
    assert judged(document) == [("Forbidden", f"{STORAGE}.redis"), ("Invalid", f"{STORAGE}.provider")]


@rule("ADM-38", "ADM-W15")
@pytest.mark.parametrize(
    "endpoint", ["r.example:6379", "  r.example:6379  ", "[::1]:6379", "10.0.0.9:1", "r:65535", "a_b:6379"]
)
def test_an_endpoint_is_host_and_port(endpoint: str) -> None:
    assert problem_of_endpoint(endpoint) == ""


@rule("ADM-38", "ADM-W15")
@pytest.mark.parametrize(
    ("endpoint", "word"),
    [
        ("", "empty"),
        (" \t", "empty"),
        ("redis://r:6379", "scheme"),
        ("r :6379", "white space"),
        ("r\x00:6379", "control"),
        ("r", "form"),
        (":6379", "form"),
        ("::1:6379", "form"),
        ("[]:6379", "form"),
        ("[::1:6379", "form"),
        ("r:0", "port"),
        ("r:70000", "port"),
        ("r:+1", "port"),
        ("r:", "port"),
        ("r:٣", "port"),
    ],
)
def test_what_is_wrong_with_an_endpoint_is_told_apart(endpoint: str, word: str) -> None:
    assert word in problem_of_endpoint(endpoint)


@rule("ADM-69", "ADM-70", "ADM-W13", "ADM-W14")
@pytest.mark.parametrize(
    ("endpoint", "namespace"),
    [
        ("redis.team-b.svc:6379", "team-b"),
        ("redis.team-b.svc", "team-b"),
        ("REDIS.TEAM-B.SVC:6379", "team-b"),
        (" redis.team-b.svc.:6379 ", "team-b"),
        ("redis://redis.team-b.svc:6379/0", "team-b"),
        ("redis.team-b.svc?x=1", "team-b"),
        ("redis-0.redis.team-b.svc.cluster.local.:6379", "team-b"),
        ("redis.team-b:6379", ""),
        ("redis.team-b.svc.example.com:6379", ""),
        ("redis.team-b.svc.cluster.example:6379", ""),
        ("10.0.0.9:6379", ""),
        ("redis:6379", ""),
        ("redis.svc:6379", ""),
        ("cache.example.com:6379", ""),
        ("", ""),
    ],
)
def test_the_namespace_of_a_service_is_read_from_its_name(endpoint: str, namespace: str) -> None:
    assert namespace_of_endpoint(endpoint) == namespace


@rule("ADM-68", "ADM-W13")
def test_a_store_of_another_namespace_needs_the_opt_in() -> None:
    foreign = storing(EXTERNAL, endpoint="redis.team-b.svc:6379")
    assert judged(foreign) == [("Forbidden", f"{STORAGE}.endpoint")]
    (detail,) = details(foreign)
    assert all(word in detail for word in ("team-a", "team-b", "spec.allowCrossNamespace"))
    assert judged(changed(foreign, {"spec.allowCrossNamespace": True})) == []
    assert judged(changed(foreign, {"spec.allowCrossNamespace": False})) != []
    assert judged(storing(EXTERNAL, endpoint="redis.team-a.svc:6379")) == []


@rule("ADM-68", "ADM-30")
def test_ownership_does_not_matter_to_the_namespace() -> None:
    assert judged(storing(REDIS, endpoint="redis.team-b.svc:6379")) == [
        ("Forbidden", f"{STORAGE}.endpoint"),
        ("Forbidden", f"{STORAGE}.endpoint"),
    ]


@pytest.mark.parametrize(
    ("authentication", "expected"),
    [
        pytest.param({"password": SECRET}, [], marks=rule("ADM-62")),
        pytest.param({"password": SECRET, "username": SECRET}, [], marks=rule("ADM-62")),
        pytest.param(
            {},
            [("Required", f"{PASSWORD}.name"), ("Required", f"{PASSWORD}.key")],
            marks=rule("ADM-62", "ADM-63"),
        ),
        pytest.param(
            {"password": {"name": " ", "key": " "}},
            [("Required", f"{PASSWORD}.name"), ("Required", f"{PASSWORD}.key")],
            marks=rule("ADM-W16"),
        ),
        pytest.param(
            {"password": SECRET | {"name": "Upper"}}, [("Invalid", f"{PASSWORD}.name")], marks=rule("ADM-62")
        ),
        pytest.param(
            {"password": SECRET | {"name": "a" * 254}},
            [("Invalid", f"{PASSWORD}.name")],
            marks=rule("ADM-62"),
        ),
        pytest.param({"password": SECRET | {"name": "a.b-c"}}, [], marks=rule("ADM-62")),
        *(
            pytest.param(
                {"password": SECRET | {"key": key}}, [("Invalid", f"{PASSWORD}.key")], marks=rule("ADM-63")
            )
            for key in ("a b", ".", "..", "..a", "a/b", "a" * 254)
        ),
        pytest.param({"password": SECRET | {"key": ".a_B-9"}}, [], marks=rule("ADM-63")),
        pytest.param(
            {"password": SECRET | {"optional": True}},
            [("Forbidden", f"{PASSWORD}.optional")],
            marks=rule("ADM-64", "ADM-W16"),
        ),
        pytest.param({"password": SECRET | {"optional": False}}, [], marks=rule("ADM-64")),
        pytest.param(
            {"password": SECRET, "username": {"name": "", "key": "a b", "optional": True}},
            [
                ("Required", f"{USERNAME}.name"),
                ("Invalid", f"{USERNAME}.key"),
                ("Forbidden", f"{USERNAME}.optional"),
            ],
            marks=rule("ADM-62", "ADM-63", "ADM-64"),
        ),
    ],
)
def test_credentials_name_a_key_of_a_secret(authentication: Document, expected: Found) -> None:
    assert judged(storing(EXTERNAL, redis={"authentication": authentication})) == expected


@rule("ADM-61")
def test_credentials_are_for_backends_with_lm_cache_servers() -> None:
    storage: Document = EXTERNAL | {"redis": {"authentication": {"password": {}}}}
    for make in (pod_local, node_local):
        assert ("Forbidden", f"{STORAGE}.redis.authentication") not in judged(
            changed(make(), {STORAGE: storage})
        )
    found = judged(changed(hi_cache(), {STORAGE: storage}))
    assert found == [
        ("Forbidden", f"{STORAGE}.redis.authentication"),
        ("Invalid", f"{STORAGE}.provider"),
    ], "and nothing about the selectors"


@rule("ADM-65", "ADM-W16")
def test_a_managed_redis_has_no_other_user() -> None:
    authentication = {"password": SECRET, "username": SECRET}
    assert judged(storing(REDIS, redis={"authentication": authentication})) == [("Forbidden", USERNAME)]
