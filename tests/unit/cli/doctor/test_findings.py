"""The table of codes, and reports as people and programs read them."""

from __future__ import annotations

import json

import pytest

from inferencecache.cli.doctor.findings import (
    BACKENDS,
    CHECKS,
    CODES,
    COVERAGE,
    SERVER,
    Finding,
    Report,
    Severity,
)
from inferencecache.cli.doctor.output import as_json, as_table, as_text

REPORT = Report(
    (
        Finding("SV001", SERVER, "host:9090", "no   connection\nat all"),
        Finding("CB002", BACKENDS, "cachebackend/a/b", "no pod"),
        Finding("CP001", COVERAGE, "namespace/a", "defaults"),
        Finding("SV003", SERVER, "host:9091", "fine"),
        Finding("SV003", SERVER, "", "fine too"),
    )
)


@pytest.mark.rule("OPS-78")
def test_checks_are_named_and_ordered_as_the_contract_has_them() -> None:
    assert [check.name for check in CHECKS[:9]] == [
        "ServerReachability",
        "SnapshotReachability",
        "PolicyReachability",
        "ProbeReachability",
        "CacheBackendHealth",
        "EnginePodInjectionAudit",
        "OrphanPodCheck",
        "CacheTenantHealth",
        "CachePolicyCoverage",
    ]


@pytest.mark.rule("OPS-79", "OPS-81")
def test_codes_have_the_severities_of_the_contract() -> None:
    by_severity = {
        Severity.FAIL: "API001 SV001 SV002 SN001 PL001 PB001 JS001 JS002 RT001 RT003",
        Severity.WARN: "SN002 SN005 PL003 PB003 CB001 CB002 CB003 CB004 CB005 CB007 EP001 EP003 OP001 CT001 "
        "CP003 JS003 JS004 JS006 RT002 EN001 EN002 EN003 EN004 EN005 EN006",
        Severity.INFO: "SN003 CP001 EN008",
        Severity.OK: "SV003 SN004 PL002 PB002 CB006 EP002 CT002 CP002 JS005 RT004 EN007",
    }
    for severity, expected in by_severity.items():
        assert {code for code, each in CODES.items() if each.severity is severity} == set(expected.split())


def test_whatever_is_wrong_says_what_to_do() -> None:
    for code in CODES.values():
        assert bool(code.remedy) or code.severity is Severity.OK or code.code == "CP001", code


@pytest.mark.rule("OPS-73")
@pytest.mark.parametrize(("worst", "exit_code"), [("SV003", 0), ("CP001", 0), ("CB002", 1), ("SV001", 2)])
def test_the_exit_code_follows_the_worst_finding(worst: str, exit_code: int) -> None:
    findings = (Finding("SV003", SERVER, "", ""), Finding(worst, SERVER, "", ""))
    assert Report(findings).exit_code == exit_code


@pytest.mark.rule("OPS-93", "OPS-W35")
def test_people_read_the_worst_first_and_a_summary_last() -> None:
    text = as_text(REPORT, coloured=False)
    assert text == (
        "inferencecache doctor\n\n"
        "FAIL\n  FAIL SV001  host:9090\n      no connection at all\n\n"
        "WARN\n  WARN CB002  cachebackend/a/b\n      no pod\n\n"
        "INFO\n  INFO CP001  namespace/a\n      defaults\n\n"
        "OK\n  OK   SV003  host:9091\n      fine\n  OK   SV003\n      fine too\n\n"
        "Summary: 2 OK, 1 INFO, 1 WARN, 1 FAIL  (exit 2)\n"
    )


@pytest.mark.rule("OPS-94")
def test_titles_are_bold_and_codes_have_the_colour_of_their_severity() -> None:
    text = as_text(REPORT, coloured=True)
    assert text.startswith("\x1b[1minferencecache doctor\x1b[0m\n")
    for sgr, head in ((31, "FAIL SV001"), (33, "WARN CB002"), (36, "INFO CP001"), (32, "OK   SV003")):
        assert f"  \x1b[{sgr}m{head}\x1b[0m" in text
    assert "\x1b" not in as_json(REPORT) + as_table(REPORT)


@pytest.mark.rule("OPS-95", "OPS-W35", "OPS-W36")
def test_programs_read_findings_in_the_order_of_checks() -> None:
    document = json.loads(as_json(REPORT))
    assert document["summary"] == {"ok": 2, "info": 1, "warn": 1, "fail": 1, "exitCode": 2}
    assert [each["code"] for each in document["findings"]] == ["SV001", "CB002", "CP001", "SV003", "SV003"]
    assert document["findings"][1] == {
        "code": "CB002",
        "status": "WARN",
        "check": "CacheBackendHealth",
        "resource": "cachebackend/a/b",
        "message": "no pod",
    }
    assert "resource" not in document["findings"][-1]
    assert as_json(Report()).startswith('{\n  "summary": {\n    "ok": 0,')
    assert json.loads(as_json(Report()))["findings"] == []


@pytest.mark.rule("OPS-96", "OPS-W35", "OPS-W36")
def test_a_table_has_a_row_a_finding_and_a_dash_for_no_resource() -> None:
    header, first, *_, last = as_table(REPORT).splitlines()
    assert header.split() == ["STATUS", "CODE", "CHECK", "RESOURCE", "MESSAGE"]
    assert first.endswith("host:9090         no connection at all")
    assert last.split()[3] == "-"
    assert as_table(Report()) == "STATUS  CODE  CHECK  RESOURCE  MESSAGE\n"


@pytest.mark.rule("OPS-W36")
def test_an_empty_report_is_a_title_and_a_summary() -> None:
    assert as_text(Report(), coloured=False) == (
        "inferencecache doctor\n\nSummary: 0 OK, 0 INFO, 0 WARN, 0 FAIL  (exit 0)\n"
    )


def test_what_others_wrote_does_not_paint_the_terminal() -> None:
    hostile = Report((Finding("CB001", BACKENDS, "", "a\x1b[2Jb\x07"),))
    assert "\x1b" not in as_text(hostile, coloured=False) + as_table(hostile)
