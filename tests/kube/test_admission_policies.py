"""CachePolicy and CacheTenant through an API server that asks the webhooks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kube.admitting import accepted, denied, refused, refused_by_schema, tried
from tests.support.kube import Document, KubeClient, new_namespace
from tests.support.resources import document
from tests.support.webhooks import ServedWebhooks

pytestmark = pytest.mark.kube
rule = pytest.mark.rule

PROBE = "inferencecache.io/probe"
LABEL = {"metadata": {"labels": {"touched": "yes"}}}


class Objects:
    """Objects of one kind in a namespace of the test's own."""

    def __init__(self, client: KubeClient, namespace: str, kind: str) -> None:
        self.client = client
        self.namespace = namespace
        self.kind = kind

    def made(self, name: str, **spec: Any) -> Document:
        return document(self.kind, f"{self.namespace}/{name}", spec)

    async def stored(self, name: str, **spec: Any) -> Document:
        return accepted(await self.client.create(self.made(name, **spec)))

    async def update(self, name: str, change: Document) -> Any:
        return await self.client.patch(self.kind, name, self.namespace, change)


@pytest.fixture
def policies(guarded: KubeClient, guarded_namespace: str) -> Objects:
    return Objects(guarded, guarded_namespace, "CachePolicy")


@pytest.fixture
def tenants(guarded: KubeClient, guarded_namespace: str) -> Objects:
    return Objects(guarded, guarded_namespace, "CacheTenant")


@rule("ADM-21")
async def test_only_the_schema_completes_policies_and_tenants(policies: Objects, tenants: Objects) -> None:
    assert (await policies.stored("p"))["spec"] == {
        "eviction": "LRU",
        "minimumMatchedTokens": 64,
        "routingFloorScore": "0.1",
        "affinityRouting": "Enabled",
    }
    spec = {"tenantID": "a", "isolationMode": "Fairness"}
    assert (await tenants.stored("t", tenantID="a"))["spec"] == spec


@rule("ADM-W21", "ADM-119", "ADM-117", "ADM-16")
async def test_w21_a_second_policy_is_refused_with_what_else_is_wrong(
    policies: Objects, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        await policies.stored("zeta")
        await policies.stored("alpha")
    _, detail = refused(
        await policies.client.create(policies.made("new", evictionTTL="-1s")),
        "vcachepolicy",
        ("spec.evictionTTL", 'Invalid value: "-1s"'),
        ("metadata.name", "Forbidden"),
    )
    assert "alpha" in detail
    assert "edit" in detail


@rule("ADM-W21", "ADM-120", "ADM-117")
async def test_w21_one_of_two_policies_can_be_updated(policies: Objects, webhooks: ServedWebhooks) -> None:
    await policies.stored("zeta")
    with webhooks.asleep():
        await policies.stored("alpha")
    for name in ("zeta", "alpha"):
        accepted(await policies.update(name, LABEL))
        accepted(await policies.update(name, {"spec": {"evictionTTL": "1ns"}}))
        wrong = await policies.update(name, {"spec": {"evictionTTL": "0s"}})
        refused(wrong, "vcachepolicy", ("spec.evictionTTL", 'Invalid value: "0s"'))


@rule("ADM-118")
async def test_the_schema_refuses_a_required_chain_that_is_switched_off(policies: Objects) -> None:
    strategy = {"enableChainMatching": False, "requireChain": True}
    refused_by_schema(await tried(policies.client, policies.made("p", strategy=strategy)), "spec")


@rule("ADM-W22", "ADM-122", "ADM-124")
async def test_w22_an_id_is_taken_once_in_a_namespace(tenants: Objects) -> None:
    await tenants.stored("first", tenantID="a")
    taken = ("spec.tenantID", 'Invalid value: "a"')
    second = tenants.made("second", tenantID="a")
    (detail,) = refused(await tenants.client.create(second), "vcachetenant", taken)
    assert "first" in detail
    assert tenants.namespace in detail
    elsewhere = await new_namespace(tenants.client)
    accepted(await tenants.client.create(document("CacheTenant", f"{elsewhere}/first", {"tenantID": "a"})))


@rule("ADM-W22", "ADM-123")
async def test_w22_a_duplicate_id_can_be_kept_but_not_taken(
    tenants: Objects, webhooks: ServedWebhooks
) -> None:
    await tenants.stored("first", tenantID="a")
    await tenants.stored("third", tenantID="c")
    with webhooks.asleep():
        await tenants.stored("second", tenantID="a")
    accepted(await tenants.update("second", LABEL))
    change = {"spec": {"tenantID": "a"}}
    refused(await tenants.update("third", change), "vcachetenant", ("spec.tenantID", 'Invalid value: "a"'))
    accepted(await tenants.update("second", {"spec": {"tenantID": "b"}}))


@rule("ADM-W22", "ADM-121")
async def test_w22_the_id_of_the_self_test_is_reserved(tenants: Objects, webhooks: ServedWebhooks) -> None:
    reserved = ("spec.tenantID", f'Invalid value: "{PROBE}"')
    refused(await tenants.client.create(tenants.made("t", tenantID=PROBE)), "vcachetenant", reserved)
    await tenants.stored("mine", tenantID="a")
    refused(await tenants.update("mine", {"spec": {"tenantID": PROBE}}), "vcachetenant", reserved)
    with webhooks.asleep():
        await tenants.stored("old", tenantID=PROBE)
    accepted(await tenants.update("old", LABEL))


@rule("ADM-13", "CRD-170", "CRD-13")
async def test_what_cannot_be_read_is_denied_by_the_first_webhook(
    policies: Objects, tenants: Objects
) -> None:
    for spec, path in (
        ({"evictionTTL": "1d"}, "evictionTTL"),
        ({"lookupTimeoutMs": 2**31}, "lookupTimeoutMs"),
    ):
        answer = await tried(policies.client, policies.made("p", **spec))
        denied(answer, 400, "BadRequest", webhook="mcachepolicy", message=f"spec.{path}")
    made = tenants.made("t", tenantID="a", quota={"maxIndexEntries": 2**63})
    path = "spec.quota.maxIndexEntries"
    denied(await tried(tenants.client, made), 400, "BadRequest", webhook="mcachetenant", message=path)


@rule("ADM-13")
async def test_a_stored_policy_that_cannot_be_read_can_be_repaired(
    policies: Objects, webhooks: ServedWebhooks
) -> None:
    with webhooks.asleep():
        await policies.stored("broken", evictionTTL="1d")
        await policies.stored("other")
    accepted(await policies.update("other", LABEL))
    accepted(await policies.update("broken", {"spec": {"evictionTTL": "1h"}}))


@rule("ADM-14")
async def test_simultaneous_creations_may_both_pass_and_both_stay_editable(policies: Objects) -> None:
    names = ("a", "b", "c")
    answers = await asyncio.gather(*(policies.client.create(policies.made(name)) for name in names))
    stored = [name for name, answer in zip(names, answers, strict=True) if answer.status == 201]
    assert stored, "at least one passes"
    for name in stored:
        accepted(await policies.update(name, LABEL))


@rule("ADM-04")
async def test_an_invalid_object_can_be_deleted(tenants: Objects, webhooks: ServedWebhooks) -> None:
    with webhooks.asleep():
        await tenants.stored("t", tenantID=PROBE)
    accepted(await tenants.client.delete("CacheTenant", "t", tenants.namespace))
