"""Which resources are in force, and with which values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferencecache.core.index.policy import NO_POLICY, Policies, knobs_of
from inferencecache.core.policy import (
    policy_applied,
    resolve,
    resolve_policy,
    resolve_topology,
    sibling_violations,
)
from inferencecache.core.policy.resolve import SHORT_TTL_MS
from inferencecache.schemas.ids import OwnerId, TenantId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy, ResolvedQuota
from inferencecache.schemas.records import PolicyApplied, TenantPolicy, TenantQuota
from inferencecache.schemas.resources import AnyResource, defaulted
from tests.support.resources import policy, template, tenant, topology

rule = pytest.mark.rule
TTL_US = 1_800_000_000


def quotas_of(*resources: AnyResource) -> list[tuple[str, int]]:
    return [(q.tenant_id, q.max_index_entries) for q in resolve(resources).policy_set.quotas]


@pytest.mark.rule("IDX-121")
def test_of_several_policies_in_a_namespace_the_first_by_name_counts_whole() -> None:
    zeta = policy("team-a/zeta", minimumPrefixTokens=200, evictionTTL="10m")
    alpha = policy("team-a/alpha", minimumMatchedTokens=7)
    resolution = resolve([zeta, alpha])
    assert resolution.policy_set.policies == (resolve_policy(alpha),)
    assert resolution == resolve([alpha, zeta])
    assert [(effect.ref.name, effect.in_force) for effect in resolution.effects] == [
        ("alpha", True),
        ("zeta", False),
    ]
    assert resolution.effects[1].text == "ignored: alpha comes first in this namespace"


@pytest.mark.rule("IDX-121", "CRD-137")
def test_of_several_tenants_with_one_id_the_first_that_sets_a_quota_counts() -> None:
    without, second, first = tenant("a/w", "t"), tenant("b/y", "t", 99), tenant("a/x", "t", 10)
    assert quotas_of(second, without, first) == [("t", 10)]
    assert quotas_of(second, without) == [("t", 99)]
    assert quotas_of(without) == []


def test_quotas_come_in_the_order_of_their_objects() -> None:
    assert quotas_of(tenant("b/y", "alpha", 2), tenant("a/x", "zeta", 1)) == [("zeta", 1), ("alpha", 2)]


@pytest.mark.rule("IDX-117", "IDX-118")
def test_policy_and_quota_are_separate_axes() -> None:
    resolved = resolve([policy("team-a/p", minimumPrefixTokens=1), tenant("elsewhere/x", "team-b", 5)])
    policies = Policies(resolved.policy_set)
    assert policies.policy(TenantId("team-a")) is not None
    assert policies.policy(TenantId("elsewhere")) is None
    assert policies.quota(TenantId("team-b")) == 5
    assert policies.quota(TenantId("elsewhere")) is None


@pytest.mark.rule("IDX-120")
def test_an_object_about_nobody_contributes_nothing() -> None:
    resolution = resolve([policy("/p", minimumPrefixTokens=1)])
    assert resolution.policy_set == PolicySet()
    assert not resolution.effects[0].in_force


@pytest.mark.rule("WIRE-048")
def test_a_quota_for_the_reserved_tenant_is_ignored() -> None:
    assert quotas_of(tenant("a/x", "inferencecache.io/probe", 0)) == []
    by_hand = PolicySet(quotas=(ResolvedQuota(TenantId("inferencecache.io/probe"), 0),))
    assert Policies(by_hand).quota(TenantId("inferencecache.io/probe")) is None


def test_an_id_that_no_tenant_can_have_takes_no_room_in_the_set() -> None:
    assert quotas_of(tenant("a/x", "é" * 127, 1)) == [("é" * 127, 1)]
    resolution = resolve([tenant("a/x", "é" * 128, 1)])
    assert resolution.policy_set == PolicySet()
    (effect,) = resolution.effects
    assert not effect.in_force
    assert "256 bytes" in effect.text


@pytest.mark.rule("IDX-122", "WIRE-055", "CRD-122")
def test_an_admitted_policy_without_values_is_as_no_policy_and_a_raw_one_has_no_floor() -> None:
    raw = policy()
    assert knobs_of(resolve_policy(defaulted(raw))) == NO_POLICY
    assert knobs_of(resolve_policy(raw)) == NO_POLICY._replace(minimum_matched_tokens=0)


@pytest.mark.parametrize(
    ("knob", "usual", "zero", "value"),
    [
        pytest.param("lfu", False, {}, False, marks=rule("CRD-119")),
        pytest.param("ttl_us", TTL_US, {"evictionTTL": "0s"}, TTL_US, marks=rule("CRD-120")),
        pytest.param("minimum_prefix_tokens", 0, {"minimumPrefixTokens": 0}, 0, marks=rule("CRD-121")),
        pytest.param("minimum_matched_tokens", 64, {"minimumMatchedTokens": 0}, 0, marks=rule("CRD-122")),
        pytest.param("routing_floor_score", 0.1, {"routingFloorScore": "0"}, 0, marks=rule("CRD-123")),
        pytest.param("lookup_timeout_ms", 0, {"lookupTimeoutMs": 0}, 0, marks=rule("CRD-124")),
        pytest.param("chain_matching", True, {"strategy": {}}, True, marks=rule("CRD-125")),
        pytest.param("require_chain", False, {"strategy": {}}, False, marks=rule("CRD-125")),
        pytest.param(
            "tenant_hot",
            True,
            {"strategy": {"enableChainMatching": False}},
            True,
            marks=rule("CRD-125"),
        ),
        pytest.param("affinity_routing", True, {}, True, marks=rule("CRD-126")),
    ],
)
def test_no_policy_and_an_empty_one_act_alike_and_a_zero_as_it_says(
    knob: str, usual: float, zero: dict[str, Any], value: float
) -> None:
    without = resolve([]).policy_set
    empty = resolve([defaulted(policy())]).policy_set
    for policies in (without, empty):
        assert getattr(knobs_of(Policies(policies).policy(TenantId("team-a"))), knob) == usual
    written = resolve([defaulted(policy(**zero))]).policy_set
    assert getattr(knobs_of(Policies(written).policy(TenantId("team-a"))), knob) == value


@pytest.mark.rule("IDX-125")
def test_a_policy_is_flattened_field_by_field() -> None:
    full = policy(
        eviction="LFU",
        evictionTTL="45m",
        minimumPrefixTokens=48,
        minimumMatchedTokens=32,
        routingFloorScore="2.5",
        lookupTimeoutMs=15,
        affinityRouting="Disabled",
        strategy={
            "enableChainMatching": True,
            "requireChain": True,
            "enableTenantHot": False,
            "loadBalancing": "Disabled",
            "loadWeight": "0.25",
        },
    )
    assert resolve_policy(full) == ResolvedPolicy(
        namespace="team-a",
        eviction="lfu",
        eviction_ttl_ms=2_700_000,
        minimum_prefix_tokens=48,
        minimum_matched_tokens=32,
        routing_floor_score=2.5,
        lookup_timeout_ms=15,
        affinity_routing=False,
        enable_chain_matching=True,
        require_chain=True,
        enable_tenant_hot=False,
        load_balancing=False,
        load_weight=0.25,
    )


@pytest.mark.rule("IDX-127", "IDX-W60", "CRD-127")
@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("2.5", 2.5),
        ("0", 0.0),
        ("-1.5", 0.1),
        ("not-a-number", 0.1),
        ("", 0.1),
        ("9" * 48, 0.1),
        ("inf", 0.1),
        ("nan", 0.1),
        (None, None),
    ],
)
def test_a_stored_floor_that_is_no_number_counts_as_the_default(
    text: str | None, score: float | None
) -> None:
    assert resolve_policy(policy(routingFloorScore=text)).routing_floor_score == score


@pytest.mark.rule("IDX-124")
@pytest.mark.parametrize("ttl", ["0s", "-5m", "not a duration"])
def test_a_ttl_that_got_past_admission_means_the_default(ttl: str) -> None:
    assert knobs_of(resolve_policy(policy(evictionTTL=ttl))) == knobs_of(resolve_policy(policy()))


def test_the_shortest_ttl_is_still_one() -> None:
    assert resolve_policy(policy(evictionTTL="1ns")).eviction_ttl_ms == 1


def test_a_load_weight_that_is_no_number_counts_as_the_default() -> None:
    assert resolve_policy(policy(strategy={"loadWeight": "x"})).load_weight == 0.5
    assert resolve_policy(policy(strategy={})).load_weight is None


def test_a_ttl_shorter_than_three_signs_of_life_is_warned_about() -> None:
    (short,) = resolve([policy(evictionTTL="59s")]).effects
    (long,) = resolve([policy(evictionTTL=f"{SHORT_TTL_MS}ms")]).effects
    assert "raise it to 1m" in short.warning
    assert not long.warning


def test_other_kinds_change_nothing_of_the_set() -> None:
    assert resolve([template("x"), topology()]).policy_set == PolicySet()


@pytest.mark.rule("IDX-119", "IDX-124")
def test_the_fold_gets_ages_orders_and_quotas_in_one_order() -> None:
    policies = (
        ResolvedPolicy("b", eviction_ttl_ms=1500),
        ResolvedPolicy("a", eviction="LFU"),
        ResolvedPolicy("default", eviction_ttl_ms=1_800_000, minimum_prefix_tokens=9),
        ResolvedPolicy("", eviction="lfu"),
    )
    quotas = (
        ResolvedQuota(TenantId("y"), -1),
        ResolvedQuota(TenantId("x"), 5),
        ResolvedQuota(TenantId(""), 1),
    )
    made = policy_applied(PolicySet(policies=policies, quotas=quotas), 12, OwnerId("o"), 3)
    assert made == PolicyApplied(
        OwnerId("o"),
        3,
        12,
        (TenantPolicy(TenantId("a"), 0, True), TenantPolicy(TenantId("b"), 1_500_000)),
        (TenantQuota(TenantId("x"), 5), TenantQuota(TenantId("y"), 0)),
    )
    turned = PolicySet(policies=policies[::-1], quotas=quotas[::-1])
    assert policy_applied(turned, 12, OwnerId("o"), 3) == made


def test_a_second_policy_of_a_namespace_is_not_created_but_stays_editable() -> None:
    others = [policy("team-a/zeta"), policy("team-a/alpha"), policy("team-b/p")]
    (violation,) = sibling_violations(policy("team-a/new"), others)
    assert (violation.kind, violation.path) == ("Forbidden", "metadata.name")
    assert "CachePolicy alpha already" in violation.problem
    assert sibling_violations(policy("team-a/zeta", eviction="LFU"), others, policy("team-a/zeta")) == []
    assert sibling_violations(policy("team-c/new"), others) == []


def test_a_tenant_id_is_taken_once_in_a_namespace() -> None:
    others = [tenant("a/x", "t"), tenant("a/other", "u")]
    (violation,) = sibling_violations(tenant("a/new", "t"), others)
    assert (violation.kind, violation.path) == ("Invalid", "spec.tenantID")
    assert sibling_violations(tenant("b/new", "t"), others) == []
    assert sibling_violations(tenant("a/new", "T"), others) == []
    assert sibling_violations(tenant("a/x", "t", 5), [*others, tenant("a/twin", "t")], others[0]) == []
    assert sibling_violations(tenant("a/other", "t"), others, others[1])


def test_a_topology_without_a_controller_names_its_replicas() -> None:
    stated = topology(
        transport="NIXL",
        prefillPools=[{"name": "pre", "replicaIDs": ["r2", "r1", "r2"]}],
        decodePools=[{"name": "dec", "matchLabels": {"phase": "decode"}}],
    )
    resolved = resolve_topology(stated)
    assert (resolved.namespace, resolved.name, resolved.transport) == ("serving", "chat-pd", "NIXL")
    assert [(pool.name, pool.replicas) for pool in resolved.prefill_pools] == [("pre", ("r1", "r2"))]
    assert [(pool.name, pool.replicas) for pool in resolved.decode_pools] == [("dec", ())]
    assert resolve_topology(topology()).transport == "Direct"


def test_equal_resources_resolve_alike() -> None:
    resources: list[AnyResource] = [policy("a/p"), policy("b/q", eviction="LFU"), tenant("a/x", "t", 1)]
    assert msgspec.json.encode(resolve(resources).policy_set) == msgspec.json.encode(
        resolve(resources[::-1]).policy_set
    )
