"""The policy set as the value of the bucket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferencecache.core.index.policy import NO_POLICY, UnsupportedPolicySchemaError, knobs_of
from inferencecache.core.policy import (
    PolicySetTooLargeError,
    UnreadablePolicySetError,
    decode_policy_set,
    encode_policy_set,
    resolve,
)
from inferencecache.core.policy.document import MAX_BYTES
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy, ResolvedQuota
from inferencecache.schemas.resources import AnyResource
from tests.support.resources import policy, tenant


def read(document: Any) -> PolicySet:
    return decode_policy_set(json.dumps(document).encode())


def test_a_resolved_set_is_written_in_the_names_of_the_resources() -> None:
    resources: list[AnyResource] = [
        policy("team-a/zeta", eviction="LRU"),
        policy("team-a/alpha", eviction="LRU", routingFloorScore="0"),
        tenant("team-a/x", "tenant-a", 10),
    ]
    assert json.loads(encode_policy_set(resolve(resources).policy_set)) == {
        "version": 8,
        "policies": [{"namespace": "team-a", "routingFloorScore": 0, "eviction": "lru"}],
        "tenants": [{"tenantID": "tenant-a", "maxIndexEntries": 10}],
    }


def test_every_field_has_its_place() -> None:
    full = policy(
        eviction="LFU",
        evictionTTL="1.5s",
        minimumPrefixTokens=1,
        minimumMatchedTokens=2,
        routingFloorScore="0.1",
        lookupTimeoutMs=3,
        affinityRouting="Enabled",
        strategy={
            "enableChainMatching": False,
            "requireChain": False,
            "enableTenantHot": True,
            "loadBalancing": "Disabled",
            "loadWeight": "0.5",
        },
    )
    (entry,) = json.loads(encode_policy_set(resolve([full]).policy_set))["policies"]
    assert entry == {
        "namespace": "team-a",
        "evictionTTL": 1_500_000_000,
        "minimumPrefixTokens": 1,
        "minimumMatchedTokens": 2,
        "routingFloorScore": 0.1,
        "lookupTimeoutMs": 3,
        "affinityRouting": True,
        "eviction": "lfu",
        "strategy": {
            "enableChainMatching": False,
            "requireChain": False,
            "enableTenantHot": True,
            "loadBalancing": False,
            "loadWeight": 0.5,
        },
    }


def test_an_empty_set_lists_its_policies_and_leaves_tenants_out() -> None:
    assert json.loads(encode_policy_set(PolicySet())) == {"version": 8, "policies": []}


def test_a_set_is_read_as_it_was_written() -> None:
    resources: list[AnyResource] = [
        policy("a/p", eviction="LFU", evictionTTL="10m", strategy={"requireChain": True}),
        policy("b/q"),
        tenant("a/x", "t", 0, isolationMode="Fairness"),
    ]
    policy_set = resolve(resources).policy_set
    assert decode_policy_set(encode_policy_set(policy_set)) == policy_set


@pytest.mark.rule("IDX-130", "CTL-199")
def test_a_set_of_the_current_version_is_used_as_written() -> None:
    written = {"namespace": "t", "minimumMatchedTokens": 0, "routingFloorScore": 0, "affinityRouting": False}
    (read_policy,) = read({"version": 8, "policies": [written]}).policies
    assert knobs_of(read_policy) == NO_POLICY._replace(
        minimum_matched_tokens=0, routing_floor_score=0.0, affinity_routing=False
    )


@pytest.mark.rule("IDX-129", "IDX-W63", "CTL-199", "OPS-114")
def test_a_set_of_version_3_gets_what_it_could_not_carry() -> None:
    written = {"namespace": "team-a", "evictionTTL": 15 * 60 * 10**9, "eviction": "lfu"}
    policy_set = read({"version": 3, "policies": [written]})
    assert policy_set.schema == 8
    assert knobs_of(policy_set.policies[0]) == NO_POLICY._replace(ttl_us=900 * 10**6, lfu=True)


@pytest.mark.rule("IDX-129", "CTL-199")
def test_a_floor_that_version_4_left_out_is_the_default() -> None:
    (read_policy,) = read({"version": 4, "policies": [{"namespace": "t"}]}).policies
    assert read_policy.routing_floor_score == 0.1
    assert read_policy.minimum_matched_tokens == 0


@pytest.mark.rule("IDX-128", "CTL-199", "OPS-114")
@pytest.mark.parametrize("version", [0, 2, 9, -1])
def test_another_version_is_refused_for_its_number_whatever_it_holds(version: int) -> None:
    with pytest.raises(UnsupportedPolicySchemaError, match=f"schema {version}:"):
        read({"version": version, "policies": "?", "later": 1})


@pytest.mark.rule("IDX-128", "CTL-199")
@pytest.mark.parametrize(
    "document",
    [
        {"version": 8, "policies": [], "later": 1},
        {"version": 8, "policies": [{"namespace": "t", "later": 1}]},
        {"version": 8, "policies": [{"namespace": "t", "strategy": {"later": 1}}]},
        {"version": 8, "policies": [], "tenants": [{"tenantID": "t", "maxIndexEntries": 1, "later": 1}]},
        {"version": 8},
        {"version": 8, "policies": [{"eviction": "lru"}]},
        {"version": 8, "policies": [{"namespace": "t", "evictionTTL": "5m"}]},
        {"version": 8, "policies": [{"namespace": "t", "evictionTTL": 2**64}]},
        {"version": 8, "policies": [], "tenants": [{"tenantID": "t"}]},
        {"version": "8", "policies": []},
        [],
    ],
)
def test_a_value_that_is_not_of_its_versions_form_is_refused(document: Any) -> None:
    with pytest.raises(UnreadablePolicySetError):
        read(document)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 100_000, b" " * (MAX_BYTES + 1)])
def test_bytes_that_are_no_document_are_refused(payload: bytes) -> None:
    with pytest.raises(UnreadablePolicySetError):
        decode_policy_set(payload)


def test_a_set_that_no_reader_accepts_is_not_written() -> None:
    quotas = tuple(ResolvedQuota(TenantId(f"tenant-{number:060d}"), 1) for number in range(12_000))
    with pytest.raises(PolicySetTooLargeError, match="delete policies or quotas"):
        encode_policy_set(PolicySet(quotas=quotas))


def test_the_shortest_time_survives_the_bucket() -> None:
    one_ns = {"version": 8, "policies": [{"namespace": "t", "evictionTTL": 1}]}
    assert read(one_ns).policies == (ResolvedPolicy("t", eviction_ttl_ms=1),)
