"""What tenants are told about their quota."""

from __future__ import annotations

import pytest

from inferencecache.controller.intent.cache_tenants import owner_of, tenant_verdicts
from inferencecache.core.kube.kinds import Document, key_of


def tenant(ref: str, id_: str, quota: int | None = None) -> Document:
    namespace, name = ref.split("/")
    limits = {} if quota is None else {"quota": {"maxIndexEntries": quota}}
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"tenantID": id_} | limits}


def told(document: Document, entries: int, *others: Document) -> dict[str, tuple[str, str]]:
    owner = owner_of([document, *others])
    verdicts = tenant_verdicts(document, owner, {"t": entries})
    return {type_: (each.status, each.reason) for type_, each in verdicts.items() if each is not None}


@pytest.mark.rule("CTL-W25", "CTL-183", "CTL-184", "CTL-185")
def test_the_first_with_a_quota_counts_and_all_others_are_shadowed() -> None:
    x, y, z = tenant("a/x", "t", 10), tenant("b/y", "t", 99), tenant("b/z", "t")
    assert told(x, 12, y, z) == {"Ready": ("True", "Observed"), "QuotaExceeded": ("True", "OverEntryBudget")}
    verdict = tenant_verdicts(x, key_of(x), {"t": 12})["QuotaExceeded"]
    assert verdict is not None
    assert "12" in verdict.message
    assert "10" in verdict.message
    for shadowed, rest in ((y, (x, z)), (z, (x, y))):
        assert told(shadowed, 12, *rest) == {
            "Ready": ("False", "DuplicateTenantID"),
            "QuotaExceeded": ("False", "NotEffective"),
        }
        ready = tenant_verdicts(shadowed, key_of(x), {})["Ready"]
        assert ready is not None
        assert "a/x" in ready.message


@pytest.mark.rule("CTL-183", "CTL-185")
def test_where_nobody_sets_a_quota_nobody_is_shadowed() -> None:
    one, other = tenant("a/x", "t"), tenant("a/y", "t")
    for each in (one, other):
        assert told(each, 5, one, other)["QuotaExceeded"] == ("False", "NoQuota")


@pytest.mark.rule("CTL-183", "CTL-185")
@pytest.mark.parametrize(
    ("entries", "quota", "expected"),
    [
        (0, 0, ("False", "WithinBudget")),
        (1, 0, ("True", "OverEntryBudget")),
        (5, 5, ("False", "WithinBudget")),
        (6, 5, ("True", "OverEntryBudget")),
    ],
)
def test_a_budget_holds_up_to_and_with_itself(entries: int, quota: int, expected: tuple[str, str]) -> None:
    assert told(tenant("a/x", "t", quota), entries)["QuotaExceeded"] == expected
