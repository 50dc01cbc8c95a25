"""`CachePolicy` and `CacheTenant` as the schema has them [CRD-104..136]."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.fields import REQUIRED, Field, check_field, field
from tests.kube.objects import an_object, refused, stored
from tests.support.kube import KubeClient

pytestmark = pytest.mark.kube
rule = pytest.mark.rule

DEFAULTS = {
    "eviction": "LRU",
    "minimumMatchedTokens": 64,
    "routingFloorScore": "0.1",
    "affinityRouting": "Enabled",
}
SMALLEST: dict[str, dict[str, Any]] = {
    "CacheBackend": {"runtime": "VLLM"},
    "CachePolicy": {},
    "CacheTenant": {"tenantID": "t"},
    "PromptTemplate": {"body": "x"},
    "PDTopology": {},
}
COUNTS: dict[str, Any] = {"accepted": [0, 2**31 - 1], "invalid": [-1, 2**31], "mistyped": ["1"]}
DECIMALS: dict[str, Any] = {
    "accepted": ["0", "5", "0.000001", "99999999.999999", "10"],
    "invalid": ["100000000", "01", "-1", "+1", "1.", ".5", "1e3", "0.1234567", "", "1\n", " 1", "٣"],
    "mistyped": [0.1, 1],
}


@pytest.mark.parametrize(
    "row",
    [
        field(rule("CRD-105", "CRD-W3"), "spec", [DEFAULTS], absent=REQUIRED),
        field(
            rule("CRD-106"), "spec.eviction", ["LRU", "LFU"], absent="LRU", unsupported=["lru", "FIFO", ""]
        ),
        field(rule("CRD-107", "CRD-13"), "spec.evictionTTL", ["45m", "0s", "soon", ""], mistyped=[30]),
        field(rule("CRD-108"), "spec.minimumPrefixTokens", **COUNTS),
        field(rule("CRD-109"), "spec.minimumMatchedTokens", absent=64, **COUNTS),
        field(rule("CRD-110", "CRD-W4", "CRD-W5"), "spec.routingFloorScore", absent="0.1", **DECIMALS),
        field(rule("CRD-111"), "spec.lookupTimeoutMs", **COUNTS),
        field(rule("CRD-112"), "spec.strategy", mistyped=["x"]),
        field(rule("CRD-113"), "spec.strategy.enableChainMatching", [True], absent=True, mistyped=["true"]),
        field(rule("CRD-114"), "spec.strategy.requireChain", [True, False], absent=False, mistyped=[0]),
        field(rule("CRD-115"), "spec.strategy.enableTenantHot", [True, False], absent=True, mistyped=[1]),
        field(
            rule("CRD-116"),
            "spec.affinityRouting",
            ["Enabled", "Disabled"],
            absent="Enabled",
            unsupported=["enabled", ""],
            mistyped=[True],
        ),
        field(rule("CRD-08"), "spec.strategy.loadBalancing", ["Enabled", "Disabled"], unsupported=["On"]),
        field(rule("CRD-08"), "spec.strategy.loadWeight", **DECIMALS),
        field(rule("CRD-118"), "status.observedGeneration", [0, 7], invalid=[-1]),
        field(rule("CRD-118"), "status.conditions", [[]]),
    ],
)
async def test_a_field_of_a_policy_takes_its_values_and_no_others(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "CachePolicy", row)


@pytest.mark.rule("CRD-W1", "CRD-106", "CRD-109", "CRD-110", "CRD-112", "CRD-116")
async def test_an_empty_policy_is_stored_with_its_defaults(kube: KubeClient, namespace: str) -> None:
    made = await stored(kube, an_object("CachePolicy", namespace, {}))
    assert made["spec"] == DEFAULTS
    [row] = (await kube.table("CachePolicy", namespace)).rows
    assert row["Eviction"] == "LRU"


@pytest.mark.rule("CRD-W2", "CRD-113", "CRD-114", "CRD-115")
async def test_an_empty_strategy_is_stored_with_its_defaults(kube: KubeClient, namespace: str) -> None:
    made = await stored(kube, an_object("CachePolicy", namespace, {"strategy": {}}))
    assert made["spec"]["strategy"] == {
        "enableChainMatching": True,
        "requireChain": False,
        "enableTenantHot": True,
    }


@pytest.mark.rule("CRD-W6", "CRD-117")
@pytest.mark.parametrize("rest", [{}, {"enableTenantHot": False}])
async def test_requiring_chains_that_are_not_matched_is_refused(
    kube: KubeClient, namespace: str, rest: dict[str, bool]
) -> None:
    strategy = {"enableChainMatching": False, "requireChain": True} | rest
    [(reason, where, message)] = await refused(
        kube, an_object("CachePolicy", namespace, {"strategy": strategy})
    )
    assert (reason, where) == ("FieldValueInvalid", "spec")
    assert message.endswith(": strategy.requireChain requires strategy.enableChainMatching")


@pytest.mark.rule("CRD-W7", "CRD-117", "CRD-09")
@pytest.mark.parametrize("strategy", [{"enableChainMatching": False}, {"requireChain": True}])
async def test_half_a_strategy_is_judged_with_the_defaults_of_the_other(
    kube: KubeClient, namespace: str, strategy: dict[str, bool]
) -> None:
    made = await stored(kube, an_object("CachePolicy", namespace, {"strategy": strategy}))
    assert made["spec"]["strategy"] | strategy == made["spec"]["strategy"]


@pytest.mark.rule("CRD-117", "CRD-12")
async def test_the_rule_about_chains_holds_for_changes_too(kube: KubeClient, namespace: str) -> None:
    await stored(kube, an_object("CachePolicy", namespace, {"strategy": {"requireChain": True}}))
    answer = await kube.patch(
        "CachePolicy", "one", namespace, {"spec": {"strategy": {"enableChainMatching": False}}}
    )
    assert answer.status == 422
    assert answer.causes[0][1] == "spec"


@pytest.mark.rule("CRD-10")
async def test_a_null_counts_as_absent_where_there_is_a_default(kube: KubeClient, namespace: str) -> None:
    made = await stored(kube, an_object("CachePolicy", namespace, {"minimumMatchedTokens": None}))
    assert made["spec"] == DEFAULTS


@pytest.mark.rule("CRD-08", "CRD-07")
async def test_fields_that_a_policy_has_no_more_are_dropped(kube: KubeClient, namespace: str) -> None:
    wanted = an_object("CachePolicy", namespace, {"failOpen": True, "tenantScoped": True})
    assert (await kube.create(wanted, strict=True)).status == 400
    assert (await stored(kube, wanted, strict=False))["spec"] == DEFAULTS


@pytest.mark.parametrize(
    "row",
    [
        field(rule("CRD-129"), "spec", [{"tenantID": "t", "isolationMode": "Fairness"}], absent=REQUIRED),
        field(
            rule("CRD-130", "CRD-W9"),
            "spec.tenantID",
            ["t", "Team A", " ", "ä/b"],
            absent=REQUIRED,
            invalid=[""],
            mistyped=[7],
        ),
        field(rule("CRD-131"), "spec.quota", [{}], mistyped=["x"]),
        field(
            rule("CRD-132", "CRD-W9"),
            "spec.quota.maxIndexEntries",
            [0, 2**40],
            invalid=[-1],
            mistyped=["1"],
        ),
        field(
            rule("CRD-133", "CRD-W9"),
            "spec.isolationMode",
            ["Fairness"],
            absent="Fairness",
            unsupported=["Strict", ""],
        ),
        field(
            rule("CRD-134", "CRD-W8"),
            "spec.crypto",
            [{}],
            too_many=[{"keyRef": "k"}, {"keyRef": {"name": "deep"}}],
            mistyped=["x"],
        ),
        field(rule("CRD-135", "CRD-18"), "status.indexEntries", [0, 2**40], invalid=[-1]),
        field(rule("CRD-135"), "status.observedGeneration", [0, 7], invalid=[-1]),
        field(rule("CRD-135"), "status.conditions", [[]]),
    ],
)
async def test_a_field_of_a_tenant_takes_its_values_and_no_others(
    kube: KubeClient, namespace: str, row: Field
) -> None:
    await check_field(kube, namespace, "CacheTenant", row)


@pytest.mark.rule("CRD-W8", "CRD-134", "CRD-07")
async def test_a_reserved_setting_is_refused_and_never_dropped(kube: KubeClient, namespace: str) -> None:
    empty = await stored(kube, an_object("CacheTenant", namespace, {"tenantID": "t", "crypto": {}}))
    assert empty["spec"] == {"tenantID": "t", "crypto": {}, "isolationMode": "Fairness"}
    wanted = an_object("CacheTenant", namespace, {"tenantID": "t", "crypto": {"keyRef": "k"}}, name="two")
    assert [cause[:2] for cause in await refused(kube, wanted)] == [("FieldValueTooMany", "spec.crypto")]


@pytest.mark.rule("CRD-132", "CRD-W9")
async def test_a_quota_of_nothing_is_a_quota(kube: KubeClient, namespace: str) -> None:
    spec = {"tenantID": "t", "quota": {"maxIndexEntries": 0}}
    assert (await stored(kube, an_object("CacheTenant", namespace, spec)))["spec"]["quota"] == spec["quota"]


@pytest.mark.rule("CRD-08", "CRD-136")
async def test_a_tenant_has_no_quota_and_no_status_of_bytes(kube: KubeClient, namespace: str) -> None:
    spec = {"tenantID": "t", "quota": {"maxIndexEntries": 1, "maxMemoryBytes": 1}}
    wanted = an_object("CacheTenant", namespace, spec)
    assert (await kube.create(wanted, strict=True)).status == 400
    made = await stored(kube, wanted, strict=False)
    assert made["spec"]["quota"] == {"maxIndexEntries": 1}
    answer = await kube.set_status("CacheTenant", "one", namespace, {"memoryUsed": 1, "indexEntries": 0})
    assert answer.body["status"] == {"indexEntries": 0}


@pytest.mark.rule("CRD-15", "CRD-86", "CRD-118", "CRD-135")
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("type", "inferencecache.io/Ready-1_a.b", ""),
        ("type", "a" * 316, ""),
        ("type", "a" * 317, "FieldValueTooLong"),
        ("type", "-Ready", "FieldValueInvalid"),
        ("type", "Upper.io/Ready", "FieldValueInvalid"),
        ("type", "", "FieldValueInvalid"),
        ("type", None, "FieldValueRequired"),
        ("status", "False", ""),
        ("status", "Unknown", ""),
        ("status", "true", "FieldValueNotSupported"),
        ("status", None, "FieldValueRequired"),
        ("reason", "A_b,c:d9", ""),
        ("reason", "A" * 1024, ""),
        ("reason", "A" * 1025, "FieldValueTooLong"),
        ("reason", "", "FieldValueInvalid"),
        ("reason", "not one word", "FieldValueInvalid"),
        ("reason", "9a", "FieldValueInvalid"),
        ("reason", None, "FieldValueRequired"),
        ("message", "", ""),
        ("message", "m" * 32768, ""),
        ("message", "m" * 32769, "FieldValueTooLong"),
        ("message", None, "FieldValueRequired"),
        ("lastTransitionTime", "2026-01-02T03:04:05+02:00", ""),
        ("lastTransitionTime", "today", "FieldValueTypeInvalid"),
        ("lastTransitionTime", None, "FieldValueRequired"),
        ("observedGeneration", 0, ""),
        ("observedGeneration", -1, "FieldValueInvalid"),
    ],
)
async def test_a_condition_is_complete_and_in_form(
    kube: KubeClient, namespace: str, name: str, value: object, reason: str
) -> None:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "AllGood",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    } | {name: value}
    condition = {key: value for key, value in condition.items() if value is not None}
    await stored(kube, an_object("CachePolicy", namespace, {}))
    answer = await kube.set_status("CachePolicy", "one", namespace, {"conditions": [condition]})
    if not reason:
        assert answer.body["status"]["conditions"] == [condition]
    else:
        assert reason in {cause[0] for cause in answer.causes if cause[1].endswith(f"[0].{name}")}


@pytest.mark.rule("CRD-15", "CRD-11", "CRD-19")
@pytest.mark.parametrize(
    "kind", ["CacheBackend", "CachePolicy", "CacheTenant", "PromptTemplate", "PDTopology"]
)
async def test_health_is_told_by_conditions_one_a_type(kube: KubeClient, namespace: str, kind: str) -> None:
    await stored(kube, an_object(kind, namespace, SMALLEST[kind]))
    condition = {
        "status": "True",
        "reason": "AllGood",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    both = [{"type": "Ready"} | condition, {"type": "Other"} | condition]
    answer = await kube.set_status(kind, "one", namespace, {"conditions": both, "health": "Healthy"})
    assert answer.body["status"] == {"conditions": both}
    twice = [{"type": "Ready"} | condition, {"type": "Ready"} | condition | {"status": "False"}]
    answer = await kube.replace(answer.body | {"status": {"conditions": twice}}, part="status")
    assert [cause[:2] for cause in answer.causes] == [("FieldValueDuplicate", "status.conditions[1]")]
