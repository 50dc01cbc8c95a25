"""Checks of the cluster's objects, by the worked cases of the contract and by each axis alone."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.cli.doctor.checks import judge
from inferencecache.cli.doctor.checks.backends import check_backends
from inferencecache.cli.doctor.checks.intent import check_coverage, check_tenants
from inferencecache.cli.doctor.checks.pods import check_injection, check_orphans
from inferencecache.cli.doctor.facts import Facts, ReadFailed
from tests.support.backends import change, events_only, hi_cache, pod_local
from tests.support.doctor_facts import READY, ago, backend, codes, event, external, kube, pod
from tests.support.resources import document

FORBIDDEN = ReadFailed("GET /api/v1/pods: the API answers 403 Forbidden")


@pytest.mark.rule("OPS-W23", "OPS-82", "OPS-84")
def test_a_backend_that_was_never_reconciled_fails_on_each_axis() -> None:
    report = judge(Facts(kube=kube(backends=(pod_local(),), pods={"team-a": ()}, policies=())))
    assert codes(report.findings) == ["CB001", "CB002", "CB003", "CP001"]
    assert report.exit_code == 1
    assert "LikelySelectorMismatch" in report.findings[1].message
    assert "EngineNotReportingState" in report.findings[2].message


@pytest.mark.rule("OPS-W24", "OPS-85", "OPS-86")
def test_a_drained_backend_is_healthy() -> None:
    drained = backend(indexParticipation={"prefixCount": 0})
    report = judge(Facts(kube=kube(backends=(drained,))))
    assert codes(report.findings) == ["CB006", "EP002", "CP002"]
    assert report.exit_code == 0
    assert report.findings[0].message == "0 prefixes, pods matched, host-only"
    assert report.findings[0].resource == "cachebackend/team-a/cache"


@pytest.mark.rule("OPS-W25")
@pytest.mark.parametrize(("seconds", "expected"), [(120, ["CB006"]), (121, ["CB004"])])
def test_events_are_stale_after_more_than_two_minutes(seconds: float, expected: list[str]) -> None:
    stale = backend(indexParticipation={"prefixCount": 1, "lastEventAt": ago(seconds=seconds)})
    findings = [*check_backends(kube(backends=(stale,)))]
    assert codes(findings) == expected
    assert ("EngineStale" in findings[0].message) is (seconds == 121)


@pytest.mark.rule("OPS-W26", "OPS-83", "OPS-87")
def test_an_external_store_that_refuses_is_the_only_finding() -> None:
    facts = kube(backends=(external(),), dials={"redis.example:6379": "Connection refused"})
    assert codes([*check_backends(facts)]) == ["CB005"]
    (fine,) = check_backends(facts._replace(dials={"redis.example:6379": ""}))
    assert (fine.code, fine.message) == ("CB006", "external backend, endpoint reachable")


@pytest.mark.rule("OPS-W27", "OPS-86")
def test_without_a_dial_the_endpoint_is_present() -> None:
    (finding,) = check_backends(kube(backends=(external(),)))
    assert (finding.code, finding.message) == ("CB006", "external backend, endpoint present")


@pytest.mark.rule("OPS-W28", "OPS-80", "OPS-84")
def test_pods_that_cannot_be_counted_are_no_mismatch() -> None:
    uncounted = change(backend(), "status.matchedEnginePods", None)
    report = judge(Facts(kube=kube(backends=(uncounted,), pods={"team-a": FORBIDDEN})))
    assert [(each.code, each.resource) for each in report.findings] == [
        ("API001", "cachebackend/team-a/cache"),
        ("API001", "Pod"),
        ("CP002", "namespace/team-a"),
    ]
    assert report.exit_code == 2


@pytest.mark.rule("OPS-84")
def test_without_a_count_pods_are_counted_as_they_are() -> None:
    uncounted = change(backend(), "status.matchedEnginePods", None)
    assert codes([*check_backends(kube(backends=(uncounted,)))]) == ["CB006"]
    assert codes([*check_backends(kube(backends=(uncounted,), pods={"team-a": ()}))]) == ["CB002"]


@pytest.mark.rule("OPS-81")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [READY | {"status": "Unknown", "reason": "R", "message": "M"}]}, "CB001"),
        ({"matchedEnginePods": 0}, "CB002"),
        ({"firstKVEventObservedAt": None, "indexParticipation": None}, "CB003"),
        ({"conditions": [READY, READY | {"type": "FunctionalProbeOK", "status": "False"}]}, "CB007"),
    ],
)
def test_each_axis_of_a_backend_has_its_code(status: dict[str, Any], expected: str) -> None:
    assert codes([*check_backends(kube(backends=(backend(**status),)))]) == [expected]


@pytest.mark.rule("OPS-81")
def test_a_condition_is_quoted_with_status_reason_and_message() -> None:
    bad = backend(conditions=[READY | {"status": "False", "reason": "NoEnginePods", "message": "why"}])
    (finding,) = check_backends(kube(backends=(bad,)))
    assert finding.message.startswith("Ready is False (NoEnginePods): why")


@pytest.mark.rule("OPS-83")
def test_events_only_has_no_endpoint_to_judge_and_unmanaged_is_never_ready() -> None:
    observed = change(events_only(), "status", backend()["status"])
    assert codes([*check_backends(kube(backends=(observed,)))]) == ["CB006"]
    unmanaged = change(hi_cache(), "status", {})
    assert "CB001" in codes([*check_backends(kube(backends=(unmanaged,)))])


def test_a_declared_store_needs_an_endpoint() -> None:
    assert codes([*check_backends(kube(backends=(external(""),)))]) == ["CB005"]


@pytest.mark.rule("OPS-W29", "OPS-88")
def test_marks_count_only_for_the_backend_that_is_there_now() -> None:
    gone = change(backend(), "metadata.uid", "another")
    facts = kube(backends=(gone,))
    assert codes([*check_injection(facts)]) == ["EP001"]
    told = event("InjectedByCacheBackend", pod())
    (proven,) = check_injection(facts._replace(events=(told,)))
    assert proven.code == "EP002"
    assert "cache" not in proven.message.lower().replace("injectedbycachebackend", "")
    older = event("InjectedByCacheBackend", pod(uid="p-0"))
    assert codes([*check_injection(facts._replace(events=(older,)))]) == ["EP001"]


@pytest.mark.rule("OPS-88")
def test_an_event_of_the_older_api_is_proof_too() -> None:
    told = {"reason": "InjectedByCacheBackend", "involvedObject": {"kind": "Pod", "uid": "p-1"}}
    facts = kube(pods={"team-a": (pod(injected=False),)})
    assert codes([*check_injection(facts)]) == ["EP001"]
    assert codes([*check_injection(facts._replace(events=(told,)))]) == ["EP002"]


@pytest.mark.rule("OPS-W30")
def test_a_pod_of_two_backends_is_told_with_both_names() -> None:
    b, a = (change(backend(), "metadata.name", name) for name in "ba")
    findings = [*check_injection(kube(backends=(b, a)))]
    assert codes(findings) == ["EP003"]
    assert "a, b" in findings[0].message
    assert findings[0].resource == "pod/team-a/engine-0"


@pytest.mark.rule("OPS-88")
def test_without_a_selector_no_pod_is_audited() -> None:
    facts = kube(backends=(change(backend(), "spec.engineSelector", None),), pods={"team-a": FORBIDDEN})
    assert [*check_injection(facts)] == []
    assert codes([*check_backends(facts)]) == ["CB006"]


@pytest.mark.rule("OPS-81", "OPS-89")
def test_an_orphan_is_told_for_a_day_by_the_newest_event_about_it() -> None:
    def told(**fields: Any) -> list[str]:
        return codes([*check_orphans(kube(events=(event("NoMatchingCacheBackend", pod(), **fields),)))])

    assert told() == ["OP001"]
    assert told(eventTime=ago(hours=25)) == []
    assert told(eventTime=ago(hours=25), series={"lastObservedTime": ago(hours=1)}) == ["OP001"]
    assert told(eventTime=ago(hours=1), lastTimestamp=ago(hours=25)) == []
    assert told(eventTime=None, metadata={"creationTimestamp": ago(hours=23)}) == ["OP001"]
    both = (event("NoMatchingCacheBackend", pod()), event("NoMatchingCacheBackend", pod()))
    (finding,) = check_orphans(kube(events=both))
    assert finding.resource == "pod/team-a/engine-0"
    assert "LikelyOperatorMisconfiguration" in finding.message


@pytest.mark.rule("OPS-81")
def test_a_tenant_beyond_its_quota_is_told_with_the_numbers() -> None:
    tenant = document("CacheTenant", "team-a/q", {"tenantID": "t", "quota": {"maxIndexEntries": 5}})
    exceeded = {"conditions": [{"type": "QuotaExceeded", "status": "True", "message": "too many"}]}
    (fine,) = check_tenants(kube(tenants=(tenant,)))
    assert (fine.code, fine.resource) == ("CT002", "cachetenant/team-a/q")
    (finding,) = check_tenants(kube(tenants=(tenant | {"status": exceeded | {"indexEntries": 9}},)))
    assert finding.code == "CT001"
    assert "tenant t has 9 entries, its quota is 5: too many" in finding.message
    unset = change(tenant, "spec.quota", None) | {"status": exceeded}
    (finding,) = check_tenants(kube(tenants=(unset,)))
    assert "unknown entries, its quota is unset" in finding.message


@pytest.mark.rule("OPS-81", "OPS-90")
def test_policies_are_counted_in_namespaces_with_backends() -> None:
    elsewhere = change(backend(), "metadata.namespace", "a-first")
    policies = tuple(document("CachePolicy", ref, {}) for ref in ("team-a/x", "team-a/y", "other/z"))
    findings = [*check_coverage(kube(backends=(backend(), elsewhere), policies=policies))]
    assert [(each.code, each.resource) for each in findings] == [
        ("CP001", "namespace/a-first"),
        ("CP003", "namespace/team-a"),
    ]
    assert "2 CachePolicy" in findings[1].message


@pytest.mark.rule("OPS-80")
def test_a_list_that_fails_ends_the_checks_that_need_it() -> None:
    failed = ReadFailed("403")
    nothing = kube(backends=failed, pods={}, events=failed, tenants=failed, policies=failed)
    report = judge(Facts(kube=nothing))
    assert [(each.code, each.check.name, each.resource) for each in report.findings] == [
        ("API001", "CacheBackendHealth", "CacheBackend"),
        ("API001", "EnginePodInjectionAudit", "CacheBackend"),
        ("API001", "OrphanPodCheck", "Event"),
        ("API001", "CacheTenantHealth", "CacheTenant"),
        ("API001", "CachePolicyCoverage", "CacheBackend"),
    ]


def test_a_document_of_another_shape_breaks_no_check() -> None:
    strange = {"metadata": {"name": "x", "namespace": "n"}, "spec": 1, "status": {"conditions": None}}
    assert "CB001" in codes([*check_backends(kube(backends=(strange,)))])


@pytest.mark.rule("OPS-91")
def test_resources_are_named_by_kind_namespace_and_name_or_by_what_could_not_be_read() -> None:
    tenant = document("CacheTenant", "team-a/q", {"tenantID": "t"})
    facts = kube(tenants=(tenant,), events=ReadFailed("403"))
    assert [each.resource for each in judge(Facts(kube=facts)).findings] == [
        "cachebackend/team-a/cache",
        "Event",
        "Event",
        "cachetenant/team-a/q",
        "namespace/team-a",
    ]
