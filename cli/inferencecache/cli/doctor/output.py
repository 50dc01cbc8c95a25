"""A report as text for people, as a table, and as JSON [OPS-93..96]."""

from __future__ import annotations

import json
from typing import Any, Final

from inferencecache.cli.doctor.findings import Report, Severity

_COLOURS: Final = {Severity.FAIL: "31", Severity.WARN: "33", Severity.INFO: "36", Severity.OK: "32"}
_BOLD: Final = "1"
_HEADINGS: Final = ("STATUS", "CODE", "CHECK", "RESOURCE", "MESSAGE")
_IN_SUMMARY: Final = (Severity.OK, Severity.INFO, Severity.WARN, Severity.FAIL)


def as_text(report: Report, *, coloured: bool) -> str:
    """Sections by severity, the worst first."""

    def painted(text: str, sgr: str) -> str:
        return f"\x1b[{sgr}m{text}\x1b[0m" if coloured else text

    lines = [painted("inferencecache doctor", _BOLD), ""]
    for severity in Severity:
        findings = tuple(report.of(severity))
        if not findings:
            continue
        lines.append(painted(severity.value, _BOLD))
        for finding in findings:
            head = painted(f"{severity.value:<4} {finding.code}", _COLOURS[severity])
            lines.append(f"  {head}" + (f"  {finding.resource}" if finding.resource else ""))
            lines.append(f"      {_one_line(finding.message)}")
        lines.append("")
    counts = ", ".join(f"{report.counts[severity]} {severity.value}" for severity in _IN_SUMMARY)
    lines.append(painted(f"Summary: {counts}  (exit {report.exit_code})", _BOLD))
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    """Findings in the order of checks; one without a resource has no such field."""
    summary: dict[str, int] = {severity.value.lower(): report.counts[severity] for severity in _IN_SUMMARY}
    findings: list[dict[str, Any]] = [
        {
            "code": finding.code,
            "status": finding.severity.value,
            "check": finding.check.name,
            **({"resource": finding.resource} if finding.resource else {}),
            "message": finding.message,
        }
        for finding in report.findings
    ]
    document = {"summary": summary | {"exitCode": report.exit_code}, "findings": findings}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def as_table(report: Report) -> str:
    """A row a finding, in the order of checks."""
    rows = [
        _HEADINGS,
        *(
            (
                finding.severity.value,
                finding.code,
                finding.check.name,
                finding.resource or "-",
                _one_line(finding.message),
            )
            for finding in report.findings
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) + "\n"
        for row in rows
    )


def _one_line(message: str) -> str:
    """A message may quote what others wrote; it must not end its line or paint the terminal."""
    return "".join(each if each.isprintable() else " " for each in " ".join(message.split()))
