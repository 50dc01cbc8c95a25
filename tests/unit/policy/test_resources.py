"""Custom resources: reading, defaulting, and errors that say what to change."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.schemas.resources import (
    CachePolicy,
    InvalidResourceError,
    PDTopology,
    defaulted,
    document_of,
    parse_duration,
    read_resource,
    violations,
)
from tests.support.resources import document, policy, template, tenant, topology


def spec_of(kind: str, spec: dict[str, Any] | None) -> dict[str, Any]:
    """The spec as the API server would store it."""
    stored: dict[str, Any] = document_of(defaulted(read_resource(document(kind, spec=spec))))
    spec_: dict[str, Any] = stored.get("spec", {})
    return spec_


def refusal(kind: str, spec: dict[str, Any] | None) -> str:
    """What is said about a document that cannot be read."""
    with pytest.raises(InvalidResourceError) as raised:
        read_resource(document(kind, spec=spec))
    return str(raised.value)


def test_an_empty_policy_gets_the_defaults_and_no_absent_parent() -> None:
    assert spec_of("CachePolicy", {}) == {
        "eviction": "LRU",
        "minimumMatchedTokens": 64,
        "routingFloorScore": "0.1",
        "affinityRouting": "Enabled",
    }


def test_a_strategy_that_is_present_gets_its_own_defaults() -> None:
    assert spec_of("CachePolicy", {"strategy": {}})["strategy"] == {
        "enableChainMatching": True,
        "requireChain": False,
        "enableTenantHot": True,
    }


def test_written_values_stay_zeros_and_false_included() -> None:
    written = {
        "eviction": "LFU",
        "evictionTTL": "45m",
        "minimumPrefixTokens": 0,
        "minimumMatchedTokens": 0,
        "routingFloorScore": "0",
        "lookupTimeoutMs": 0,
        "affinityRouting": "Disabled",
        "strategy": {
            "enableChainMatching": False,
            "requireChain": False,
            "enableTenantHot": False,
            "loadBalancing": "Disabled",
            "loadWeight": "0",
        },
    }
    assert spec_of("CachePolicy", written) == written


def test_a_null_field_counts_as_absent() -> None:
    assert spec_of("CachePolicy", {"minimumMatchedTokens": None})["minimumMatchedTokens"] == 64


def test_tenants_and_topologies_get_their_defaults() -> None:
    assert spec_of("CacheTenant", {"tenantID": "t", "crypto": {}}) == {
        "tenantID": "t",
        "isolationMode": "Fairness",
        "crypto": {},
    }
    assert spec_of("PDTopology", {}) == {"transport": "Direct"}
    assert spec_of("PDTopology", None) == {}


def test_what_was_read_is_written_as_it_was() -> None:
    for resource in (
        policy(eviction="LFU", strategy={"loadWeight": "0.25"}),
        tenant("a/x", "t", 0),
        template("{{ a }}", {"name": "a", "type": "Mutable", "required": True, "description": "text"}),
        topology(prefillPools=[{"name": "p", "replicas": 0, "matchLabels": {"phase": "prefill"}}]),
    ):
        assert read_resource(document_of(resource)) == resource


def test_status_and_what_a_server_adds_to_metadata_are_no_errors() -> None:
    stored = document("CachePolicy", spec={})
    stored["metadata"] |= {"managedFields": [{}], "generation": 3, "labels": {"a": "b"}}
    stored["status"] = {"conditions": [], "later": 1}
    resource = read_resource(stored)
    assert isinstance(resource, CachePolicy)
    assert resource.metadata.generation == 3


@pytest.mark.parametrize(
    ("kind", "spec", "start", "advice"),
    [
        ("CachePolicy", {"eviction": "lru"}, "spec.eviction: 'lru' is not", "LRU or LFU"),
        ("CachePolicy", {"evictionTtl": "5m"}, "spec.evictionTtl: no such field", "evictionTTL?"),
        ("CachePolicy", {"strategy": {"chain": 1}}, "spec.strategy.chain: no such", "enableChainMatching"),
        ("CachePolicy", {"routingFloorScore": 0.1}, "spec.routingFloorScore: must be text", "quotes"),
        ("CachePolicy", {"minimumPrefixTokens": -1}, "spec.minimumPrefixTokens: expected int >= 0", "0 or"),
        ("CachePolicy", {"lookupTimeoutMs": 3_000_000_000}, "spec.lookupTimeoutMs: expected int <=", ""),
        ("CachePolicy", {"affinityRouting": True}, "spec.affinityRouting: must be text", "Enabled"),
        ("CachePolicy", None, "spec: is required", "may be empty"),
        ("CacheTenant", {}, "spec.tenantID: is required", "Tenant id"),
        ("CacheTenant", {"tenantID": ""}, "spec.tenantID: expected str of length >= 1", "Tenant id"),
        ("CacheTenant", {"tenantID": "t", "isolationMode": "Strict"}, "spec.isolationMode: 'Strict'", ""),
        ("CacheTenant", {"tenantID": "t", "crypto": {"keyRef": "k"}}, "spec.crypto: expected", "Reserved"),
        (
            "CacheTenant",
            {"tenantID": "t", "quota": {"maxIndexEntries": -1}},
            "spec.quota.maxIndexEntries: expected int >= 0",
            "unbounded",
        ),
        ("PromptTemplate", {"body": ""}, "spec.body: expected str of length >= 1", "{{ name }}"),
        (
            "PromptTemplate",
            {"body": "x", "slots": [{"name": "a", "type": "stable"}]},
            "spec.slots[0].type: 'stable' is not",
            "Mutable",
        ),
        (
            "PDTopology",
            {"prefillPools": [{"name": "p", "replicas": -1}]},
            "spec.prefillPools[0].replicas",
            "",
        ),
        ("PDTopology", {"decodePools": [{"nam": "p"}]}, "spec.decodePools[0].nam: no such field", "name?"),
        ("PDTopology", {"transport": "RDMA"}, "spec.transport: 'RDMA' is not", "Mooncake"),
    ],
)
def test_an_error_names_the_field_and_what_to_write(
    kind: str, spec: dict[str, Any] | None, start: str, advice: str
) -> None:
    text = refusal(kind, spec)
    assert text.startswith(start)
    assert advice in text


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"kind": "CachePolicys"}, "kind: 'CachePolicys' is not known here; write CachePolicy"),
        ({"kind": None}, "kind: is missing; write CacheBackend, CacheIndex"),
        ({"kind": ["x"]}, "kind: ['x'] is not known here"),
        ({"apiVersion": "v1"}, "apiVersion: 'v1' is not known here; write inferencecache.io/v1alpha1"),
        ({"metadata": {"namespace": "x"}}, "metadata.name: is required"),
    ],
)
def test_a_document_that_is_no_resource_says_what_is_missing(changes: dict[str, Any], start: str) -> None:
    with pytest.raises(InvalidResourceError) as raised:
        read_resource(document("CachePolicy", spec={}) | changes)
    assert str(raised.value).startswith(start)


@pytest.mark.parametrize("not_one", [None, "text", 1, ["a"]])
def test_only_a_mapping_is_a_resource(not_one: object) -> None:
    with pytest.raises(InvalidResourceError, match="a resource is a mapping"):
        read_resource(not_one)


def test_fields_of_a_later_version_are_ignored_where_the_server_would() -> None:
    later = document("CachePolicy", spec={"later": 1, "strategy": {"later": True}})
    resource = read_resource(later, strict=False)
    assert isinstance(resource, CachePolicy)


@pytest.mark.rule("IDX-126")
@pytest.mark.parametrize("floor", ["0", "5", "0.000001", "99999999.999999"])
def test_a_floor_of_digits_passes(floor: str) -> None:
    assert violations(policy(routingFloorScore=floor)) == []


@pytest.mark.rule("IDX-126")
@pytest.mark.parametrize(
    "floor", ["100000000", "01", "-1", "+1", "1.", ".5", "1e3", "0.1234567", "", "٣", "1\n"]
)
def test_a_floor_in_another_form_is_refused(floor: str) -> None:
    (violation,) = violations(policy(routingFloorScore=floor))
    assert violation.path == "spec.routingFloorScore"


@pytest.mark.rule("IDX-126")
@pytest.mark.parametrize(
    ("ttl", "legal"), [("0s", False), ("-1s", False), ("1ns", True), ("1d", False), ("", False)]
)
def test_a_ttl_must_be_more_than_nothing(ttl: str, legal: bool) -> None:
    assert [violation.path for violation in violations(policy(evictionTTL=ttl))] == (
        [] if legal else ["spec.evictionTTL"]
    )


@pytest.mark.rule("IDX-126")
def test_a_required_chain_needs_chain_matching() -> None:
    refused = policy(strategy={"enableChainMatching": False, "requireChain": True})
    (violation,) = violations(refused)
    assert violation.path == "spec.strategy.requireChain"
    assert violation.problem == "strategy.requireChain requires strategy.enableChainMatching"
    for half in ({"enableChainMatching": False}, {"requireChain": True}):
        assert violations(defaulted(policy(strategy=half))) == []


def test_all_violations_of_an_object_are_found_at_once() -> None:
    wrong = policy(evictionTTL="0s", routingFloorScore="x", strategy={"loadWeight": "-1"})
    assert [violation.path for violation in violations(wrong)] == [
        "spec.evictionTTL",
        "spec.routingFloorScore",
        "spec.strategy.loadWeight",
    ]


def test_the_reserved_tenant_takes_no_quota() -> None:
    (violation,) = violations(tenant("a/x", "inferencecache.io/probe", 1))
    assert violation.path == "spec.tenantID"
    assert violations(tenant("a/x", "inferencecache.io/Probe", 1)) == []


def test_names_in_a_list_are_unique() -> None:
    twice = [{"name": "a", "type": "Stable"}, {"name": "a", "type": "Mutable"}]
    (violation,) = violations(template("x", *twice))
    assert (violation.kind, violation.path) == ("Duplicate", "spec.slots[a]")
    pools = [{"name": "p"}, {"name": "p"}]
    assert len(violations(topology(prefillPools=pools, decodePools=pools, acceleratorTypes=pools))) == 3
    assert violations(topology(prefillPools=pools[:1], decodePools=pools[:1])) == []


def test_a_topology_needs_no_spec() -> None:
    bare = read_resource(document("PDTopology"))
    assert isinstance(bare, PDTopology)
    assert violations(bare) == []


@pytest.mark.rule("CRD-13")
@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("90s", 90 * 10**9),
        ("1h30m", 5_400 * 10**9),
        ("1.5h", 5_400 * 10**9),
        (".5h", 1_800 * 10**9),
        ("1.s", 10**9),
        ("-2ms", -2_000_000),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("1ns", 1),
        ("0.5ns", 0),
    ],
)
def test_a_duration_is_read_exactly(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.rule("CRD-13")
@pytest.mark.parametrize(
    "text", ["", "1", "1d", "1s" * 65, "5 m", " 5m", "m", "-", ".s", "1h-1m", "٣s", "1e3s", "300000000h"]
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|too long"):
        parse_duration(text)
