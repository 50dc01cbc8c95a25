"""The webhooks of the custom resources, from request to answer."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.admission.resources import JUDGED_KINDS, complete, judge
from inferencecache.controller.admission.reviews import (
    AdmissionRequest,
    Allowed,
    Answer,
    Denied,
    Document,
    Lookup,
    LookupFailedError,
)
from inferencecache.schemas.resources import KINDS
from tests.support.backends import pod_local
from tests.support.judging import SERVER, changed
from tests.support.resources import document

rule = pytest.mark.rule


def policy(name: str = "p", **spec: Any) -> Document:
    return document("CachePolicy", f"team-a/{name}", spec)


def tenant(name: str, tenant_id: str) -> Document:
    return document("CacheTenant", f"team-a/{name}", {"tenantID": tenant_id})


def holding(*stored: Document) -> Lookup:
    """A namespace with these objects."""

    async def lookup(plural: str, namespace: str) -> list[Document]:
        assert namespace == "team-a"
        return [one for one in stored if KINDS[one["kind"]].plural == plural]

    return lookup


async def unreachable(plural: str, namespace: str) -> list[Document]:
    raise LookupFailedError(plural, namespace, "no answer within 5 s")


async def nobody(plural: str, namespace: str) -> list[Document]:
    raise AssertionError("nothing has to be looked up")


def asked(new: Document | None, old: Document | None = None) -> AdmissionRequest:
    operation: Any = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    return AdmissionRequest(
        uid="u", operation=operation, name="asked", namespace="team-a", object=new, old_object=old
    )


async def judged(new: Document, lookup: Lookup, old: Document | None = None) -> Answer:
    return await judge(KINDS[new["kind"]], asked(new, old), lookup)


def causes(answer: Answer) -> list[tuple[str, str]]:
    assert isinstance(answer, Denied), answer
    assert (answer.code, answer.reason) == (422, "Invalid")
    return [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in answer.causes]


@rule("ADM-21")
@pytest.mark.parametrize("new", [policy(), tenant("t", "a")])
async def test_policies_and_tenants_are_left_as_they_are(new: Document) -> None:
    assert await complete(KINDS[new["kind"]], asked(new), nobody) == Allowed()


@rule("ADM-17", "ADM-18")
async def test_a_backend_is_completed() -> None:
    answer = await complete(KINDS["CacheBackend"], asked(pod_local()), nobody)
    assert isinstance(answer, Allowed)
    assert answer.changed is not None
    assert answer.changed["spec"].keys() - pod_local()["spec"].keys() == {"integration", "observation"}


@rule("ADM-13")
@pytest.mark.parametrize("webhook", [complete, judge])
async def test_an_object_that_cannot_be_read_is_no_field_error(webhook: Any) -> None:
    made = changed(pod_local(), {f"{SERVER}.l1Capacity": "much", "spec.observation.firstEventTimeout": "1d"})
    answer = await webhook(KINDS["CacheBackend"], asked(made), nobody)
    assert (answer.code, answer.reason, answer.causes) == (400, "BadRequest", ())
    assert f"{SERVER}.l1Capacity: 'much'" in answer.message
    assert "spec.observation.firstEventTimeout: '1d'" in answer.message


@rule("ADM-13")
async def test_a_wrong_type_is_for_the_schema_before_it_is_for_us() -> None:
    made = changed(pod_local(), {f"{SERVER}.port": "8000"})
    assert isinstance(await complete(KINDS["CacheBackend"], asked(made), nobody), Allowed)
    answer = await judged(made, nobody)
    assert isinstance(answer, Denied)
    assert (answer.code, answer.message) == (
        400,
        f"the CacheBackend cannot be read: {SERVER}.port: must be a whole number",
    )


@rule("ADM-12")
@pytest.mark.parametrize("new", [pod_local(), policy(), tenant("t", "a")])
async def test_siblings_that_cannot_be_read_deny_without_causes(new: Document) -> None:
    answer = await judged(new, unreachable)
    plural = KINDS[new["kind"]].plural
    message = f"cannot list {plural} in namespace team-a: no answer within 5 s"
    assert answer == Denied(403, "Forbidden", message)


@rule("ADM-12")
async def test_a_backend_without_a_selector_needs_no_list() -> None:
    assert await judged(pod_local(domain=""), nobody) == Allowed()


@rule("ADM-04", "ADM-116")
@pytest.mark.parametrize("webhook", [complete, judge])
async def test_an_object_that_is_being_deleted_is_let_go_however_invalid(webhook: Any) -> None:
    stored = changed(
        pod_local(), {f"{SERVER}.l1Capacity": "much", "metadata.deletionTimestamp": "2026-01-01"}
    )
    freed = changed(stored, {"metadata.finalizers": []})
    assert await webhook(KINDS["CacheBackend"], asked(freed, stored), nobody) == Allowed()
    altered = changed(freed, {f"{SERVER}.port": 1})
    assert isinstance(await webhook(KINDS["CacheBackend"], asked(altered, stored), nobody), Denied)
    assert await webhook(KINDS["CacheBackend"], asked(None, stored), nobody) == Allowed()


async def test_a_namespace_that_only_the_address_names_counts() -> None:
    storage = {"provider": "Redis", "ownership": "External", "endpoint": "r.team-a.svc:6379"}
    made = changed(pod_local(domain=""), {"metadata.namespace": None, "spec.remoteStorage": storage})
    assert await judged(made, nobody) == Allowed()


async def test_a_name_that_the_server_made_is_told() -> None:
    answer = await judged(changed(policy(), {"metadata.name": None, "spec.evictionTTL": "0s"}), holding())
    assert isinstance(answer, Denied)
    assert '"asked" is invalid' in answer.message


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        pytest.param("-1s", [("Invalid", "spec.evictionTTL")], marks=rule("ADM-117")),
        pytest.param("0s", [("Invalid", "spec.evictionTTL")], marks=rule("ADM-117")),
        pytest.param("1ns", [], marks=rule("ADM-117")),
    ],
)
async def test_a_time_to_live_is_more_than_nothing(ttl: str, expected: list[tuple[str, str]]) -> None:
    answer = await judged(policy(evictionTTL=ttl), holding())
    assert (causes(answer) if expected else answer) == (expected or Allowed())


@rule("ADM-118")
async def test_a_required_chain_must_not_be_switched_off() -> None:
    both = policy(strategy={"enableChainMatching": False, "requireChain": True})
    assert causes(await judged(both, holding())) == [("Invalid", "spec.strategy.requireChain")]
    for half in ({"enableChainMatching": False}, {"requireChain": True}):
        assert await judged(policy(strategy=half), holding()) == Allowed()


@rule("ADM-119", "ADM-16", "ADM-W21")
async def test_a_namespace_has_one_policy() -> None:
    stored = holding(policy("zeta"), policy("alpha"))
    answer = await judged(policy("new", evictionTTL="-1s"), stored)
    assert causes(answer) == [("Invalid", "spec.evictionTTL"), ("Forbidden", "metadata.name")]
    assert isinstance(answer, Denied)
    assert "CachePolicy alpha" in answer.causes[1].message
    assert "edit" in answer.causes[1].message


@rule("ADM-120", "ADM-11", "ADM-W21")
async def test_a_second_policy_stays_editable() -> None:
    stored = policy("zeta", evictionTTL="-1s")
    for new, expected in (
        (changed(stored, {"metadata.labels": {"a": "b"}}), []),
        (policy("zeta", evictionTTL="5m"), []),
        (policy("zeta", evictionTTL="-2s"), [("Invalid", "spec.evictionTTL")]),
    ):
        answer = await judged(new, nobody, old=stored)
        assert (causes(answer) if expected else answer) == (expected or Allowed())


@rule("ADM-15")
@pytest.mark.parametrize("new", [policy(), tenant("t", "a"), pod_local()])
async def test_an_object_does_not_collide_with_itself(new: Document) -> None:
    assert await judged(new, holding(new)) == Allowed()


PROBE = "inferencecache.io/probe"


@rule("ADM-121", "ADM-W22")
async def test_the_id_of_the_self_test_is_reserved() -> None:
    taken = [("Invalid", "spec.tenantID")]
    assert causes(await judged(tenant("t", PROBE), holding())) == taken
    assert causes(await judged(tenant("t", PROBE), holding(), old=tenant("t", "a"))) == taken
    stored = tenant("t", PROBE)
    assert await judged(changed(stored, {"metadata.labels": {"a": "b"}}), nobody, old=stored) == Allowed()
    assert await judged(tenant("t", PROBE.upper()), holding()) == Allowed()


@rule("ADM-122", "ADM-123", "ADM-16", "ADM-W22")
async def test_an_id_is_taken_once_in_a_namespace() -> None:
    stored = holding(tenant("zeta", "a"), tenant("alpha", "a"))
    answer = await judged(tenant("new", "a"), stored)
    assert causes(answer) == [("Invalid", "spec.tenantID")]
    assert isinstance(answer, Denied)
    assert all(word in answer.message for word in ("alpha", "team-a"))
    assert await judged(tenant("new", "A"), stored) == Allowed()
    relabelled = changed(tenant("zeta", "a"), {"metadata.labels": {"a": "b"}})
    assert await judged(relabelled, nobody, old=tenant("zeta", "a")) == Allowed()
    assert causes(await judged(tenant("new", "a"), stored, old=tenant("new", "b"))) == [
        ("Invalid", "spec.tenantID")
    ]
    assert await judged(tenant("new", "c"), stored, old=tenant("new", "b")) == Allowed()


@rule("ADM-13")
async def test_a_stored_object_that_cannot_be_read_harms_only_itself() -> None:
    broken = tenant("broken", "x") | {"spec": {"tenantID": "x", "quota": {"maxIndexEntries": 2**70}}}
    assert await judged(tenant("new", "a"), holding(broken)) == Allowed()
    assert causes(await judged(tenant("new", "x"), holding(broken))) == [("Invalid", "spec.tenantID")]
    assert await judged(tenant("broken", "x"), nobody, old=broken) == Allowed()
    senseless = policy("broken", evictionTTL="1d")
    assert await judged(policy("broken", evictionTTL="1m"), nobody, old=senseless) == Allowed()


async def test_what_bypassed_the_schema_is_still_told_with_its_field() -> None:
    answer = await judged(policy(eviction="lru"), holding())
    assert causes(answer) == [("Invalid", "spec.eviction")]


async def test_three_kinds_are_judged() -> None:
    assert [kind.name for kind in JUDGED_KINDS] == ["CacheBackend", "CachePolicy", "CacheTenant"]
