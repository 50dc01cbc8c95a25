"""Makes the reference of the doctor's codes from the table that the program finds by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inferencecache.cli.doctor.findings import CHECKS, CODES, Check
from tools.docs.tables import cell, table

_INTRODUCTION: Final = """\
# Codes of inferencecache doctor

A code is never given another meaning. The exit code is 2 when a finding is FAIL, 1 when one is WARN, else 0.
How to run it, and what reasons of conditions mean: [doctor](../doctor.md).
"""


def codes_page() -> dict[str, str]:
    """One page, in the order in which checks report."""
    sections = [line for check in CHECKS for line in _section(check)]
    lines = [_INTRODUCTION, *sections, "Written by `make generate`; the codes are those of the program.", ""]
    return {"doctor-codes.md": "\n".join(lines)}


def _section(check: Check) -> Iterator[str]:
    yield from (f"## {check.name}", "", f"{check.about[0].upper()}{check.about[1:]}.", "")
    rows = (
        (f"`{code.code}`", code.severity.value, cell(code.trigger), cell(code.remedy))
        for code in CODES.values()
        if code.check is check
    )
    yield from table(("Code", "Severity", "What was seen", "What to do"), rows)
    yield ""
