"""Effective policy values."""

from __future__ import annotations

import msgspec
import pytest

from inferencecache.core.index.policy import (
    DEFAULT_TTL_US,
    NO_POLICY,
    Knobs,
    Policies,
    UnsupportedPolicySchemaError,
    accept,
    knobs_of,
    resolve_floor,
)
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy, ResolvedQuota

BARE = ResolvedPolicy(namespace="t")


@pytest.mark.rule("IDX-122", "WIRE-055", "CTL-200")
def test_a_tenant_without_policy_has_the_floors_64_and_a_tenth() -> None:
    assert knobs_of(None) == Knobs(
        ttl_us=1800 * 10**6,
        lfu=False,
        minimum_prefix_tokens=0,
        minimum_matched_tokens=64,
        routing_floor_score=0.1,
        lookup_timeout_ms=0,
        affinity_routing=True,
        chain_matching=True,
        require_chain=False,
        tenant_hot=True,
    )


@pytest.mark.rule("IDX-122", "WIRE-055", "CTL-200")
def test_a_policy_without_values_differs_from_no_policy_only_in_the_matched_token_floor() -> None:
    assert knobs_of(BARE) == NO_POLICY._replace(minimum_matched_tokens=0)


@pytest.mark.rule("IDX-123", "IDX-124", "IDX-W61", "CTL-200")
def test_negative_values_switch_gates_off_and_never_on() -> None:
    policy = ResolvedPolicy(
        namespace="t",
        eviction_ttl_ms=-1,
        minimum_prefix_tokens=-1,
        minimum_matched_tokens=-1,
        routing_floor_score=-1.0,
        lookup_timeout_ms=-5,
    )
    assert knobs_of(policy) == NO_POLICY._replace(minimum_matched_tokens=0, routing_floor_score=0.0)


def test_values_of_a_policy_are_used_as_written() -> None:
    policy = ResolvedPolicy(
        namespace="t",
        eviction="LfU",
        eviction_ttl_ms=1500,
        minimum_prefix_tokens=1,
        minimum_matched_tokens=2,
        routing_floor_score=0.0,
        lookup_timeout_ms=3,
        affinity_routing=False,
        enable_chain_matching=False,
        require_chain=True,
        enable_tenant_hot=False,
    )
    assert knobs_of(policy) == Knobs(1_500_000, True, 1, 2, 0.0, 3, False, False, True, False)


@pytest.mark.rule("IDX-125")
@pytest.mark.parametrize(("name", "lfu"), [("lfu", True), ("LFU", True), ("lru", False), ("arc", False)])
def test_any_algorithm_but_lfu_is_lru(name: str, lfu: bool) -> None:
    assert knobs_of(msgspec.structs.replace(BARE, eviction=name)).lfu is lfu


@pytest.mark.rule("IDX-W60", "IDX-127")
@pytest.mark.parametrize(
    ("text", "effective"),
    [
        ("2.5", 2.5),
        ("0", 0.0),
        ("-1.5", 0.1),
        ("not-a-number", 0.1),
        ("", 0.1),
        ("9" * 48, 0.1),
        (None, 0.1),
        (" 1", 0.1),
        ("1_000", 0.1),
        ("0x1p3", 0.1),
        ("nan", 0.1),
        ("inf", 0.1),
        ("-0", 0.0),
        ("1e2", 100.0),
        ("٣", 0.1),
    ],
)
def test_a_floor_string_that_is_no_number_means_the_default_and_never_off(
    text: str | None, effective: float
) -> None:
    policy = msgspec.structs.replace(BARE, routing_floor_score=resolve_floor(text))
    assert knobs_of(policy).routing_floor_score == pytest.approx(effective)


@pytest.mark.rule("IDX-128")
@pytest.mark.parametrize("schema", [0, 1, 2, 9, 100])
def test_a_set_of_another_schema_is_refused_as_a_whole(schema: int) -> None:
    with pytest.raises(UnsupportedPolicySchemaError, match=f"schema {schema}"):
        accept(PolicySet(schema=schema, policies=(BARE,)))


@pytest.mark.rule("IDX-129")
@pytest.mark.parametrize(
    ("schema", "filled"),
    [
        (3, {"floor", "score", "strategy", "affinity"}),
        (4, {"score", "strategy", "affinity"}),
        (5, {"strategy", "affinity"}),
        (6, {"affinity"}),
        (7, set()),
        (8, set()),
    ],
)
def test_fields_that_an_older_schema_could_not_carry_are_filled(schema: int, filled: set[str]) -> None:
    (policy,) = accept(PolicySet(schema=schema, policies=(BARE,))).policies
    assert policy.minimum_matched_tokens == (64 if "floor" in filled else 0)
    assert policy.routing_floor_score == (0.1 if "score" in filled else None)
    strategy = (policy.enable_chain_matching, policy.require_chain, policy.enable_tenant_hot)
    assert strategy == ((True, False, True) if "strategy" in filled else (None, None, None))
    assert policy.affinity_routing is (True if "affinity" in filled else None)


@pytest.mark.rule("IDX-130")
def test_what_an_older_set_does_say_stays() -> None:
    said = ResolvedPolicy(
        namespace="t",
        minimum_matched_tokens=7,
        routing_floor_score=0.0,
        enable_chain_matching=False,
        require_chain=True,
        enable_tenant_hot=False,
        affinity_routing=False,
    )
    assert accept(PolicySet(schema=3, policies=(said,))).policies == (said,)


@pytest.mark.rule("IDX-W63", "IDX-129")
def test_a_policy_of_schema_3_gets_all_defaults_and_keeps_its_own_values() -> None:
    written = ResolvedPolicy(namespace="team-a", eviction="lfu", eviction_ttl_ms=900_000)
    (policy,) = accept(PolicySet(schema=3, policies=(written,))).policies
    assert knobs_of(policy) == NO_POLICY._replace(ttl_us=900 * 10**6, lfu=True)


@pytest.mark.rule("IDX-117", "IDX-118", "IDX-119")
def test_a_policy_applies_to_the_tenant_named_like_its_namespace_and_to_nobody_else() -> None:
    policies = Policies(PolicySet(policies=(ResolvedPolicy(namespace="team-a"),)))
    assert policies.policy(TenantId("team-a")) is not None
    for other in ("team-b", "Team-a", "team", ""):
        assert policies.policy(TenantId(other)) is None


@pytest.mark.rule("IDX-120", "IDX-124", "IDX-W61")
def test_quotas_are_never_negative_and_items_without_a_name_are_ignored() -> None:
    quotas = (
        ResolvedQuota(TenantId("a"), 5),
        ResolvedQuota(TenantId("b"), -1),
        ResolvedQuota(TenantId(""), 3),
    )
    policies = Policies(PolicySet(policies=(ResolvedPolicy(namespace=""),), quotas=quotas))
    assert policies.quota(TenantId("a")) == 5
    assert policies.quota(TenantId("b")) == 0
    assert policies.quota(TenantId("c")) is None
    assert policies.quota(TenantId("")) is None
    assert policies.policy(TenantId("")) is None


def test_the_default_ttl_is_half_an_hour() -> None:
    assert DEFAULT_TTL_US == 30 * 60 * 10**6
