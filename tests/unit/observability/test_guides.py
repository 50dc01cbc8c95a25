"""What the guides for operators must say, and the figures in them that follow from the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.policy import DEFAULT_TTL_US
from inferencecache.indexer.settings import read_settings
from tools.dashboard import ROWS

DOCS = Path(__file__).parents[3] / "docs"
SIZING = (DOCS / "sizing.md").read_text()
MONITORING = (DOCS / "monitoring.md").read_text()
TIMES = "\N{MULTIPLICATION SIGN}"


def rows(text: str, *headers: str) -> list[list[str]]:
    """Cells of the table with these first headers."""
    lines = iter(text.splitlines())
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[: len(headers)] == list(headers):
            next(lines)
            table = []
            for row in lines:
                if not row.startswith("|"):
                    break
                table.append([cell.strip() for cell in row.strip("|").split("|")])
            return table
    raise AssertionError(f"no table begins with {headers}")


@pytest.mark.rule("OPS-98")
def test_the_default_cap_age_and_sweep_are_those_of_the_guide() -> None:
    settings = read_settings(["--nats-url=nats://a", "--insecure-nats"], {})
    assert settings.max_entries == 1_000_000
    assert settings.sweep_interval_s == 60
    assert DEFAULT_TTL_US == 30 * 60 * 1_000_000
    assert "1,000,000 by default" in SIZING


@pytest.mark.rule("OPS-99", "OPS-W37")
def test_a_prompt_is_as_many_keys_as_it_has_whole_blocks() -> None:
    assert len(prefix_digests(range(1000), 16)) == 62
    assert "1,000 tokens in blocks of 16 are 62" in SIZING


@pytest.mark.rule("OPS-103", "OPS-104")
def test_the_formula_gives_what_was_measured() -> None:
    measured = rows(SIZING, "Storage entries", "Indexer, most", "Router, most")
    assert [row[0] for row in measured] == ["100,000", "500,000", "1,000,000", "1,500,000"]
    assert f"1.2 {TIMES} (190 MiB + 52 bytes {TIMES} storage entries)" in SIZING
    for entries, *processes, limit in measured:
        formula = 190 + 52 * int(entries.replace(",", "")) / 1024**2
        for process in processes:
            assert abs(int(process.removesuffix(" MiB")) - formula) < 15
        assert int(limit.removesuffix(" MiB")) >= 1.2 * max(int(each.split()[0]) for each in processes)


@pytest.mark.rule("OPS-100", "OPS-104")
def test_a_workload_fits_when_its_keys_times_blocks_are_within_the_cap() -> None:
    shapes = rows(SIZING, "workload", f"keys {TIMES} blocks")
    assert len(shapes) == 4
    for _, form, entries, verdict in shapes:
        keys, blocks = (int(number.replace(",", "")) for number in form.split(f" {TIMES} "))
        assert keys * blocks == int(entries.replace(",", ""))
        assert verdict.startswith("fits" if keys * blocks <= 1_000_000 else "the cap binds")


@pytest.mark.rule("OPS-102", "OPS-W40")
def test_the_first_quota_is_the_tenants_share_of_what_the_cap_holds() -> None:
    assert f"(cap ÷ replicas that hold a prefix) {TIMES} the tenant's share" in SIZING
    assert f"{int(1_000_000 / 2 * 0.25):,}" in SIZING


@pytest.mark.rule("OPS-101", "OPS-105")
def test_the_guide_reads_the_signals_and_raises_cap_and_memory_together() -> None:
    signals = rows(SIZING, "signal", "reading")
    assert len(signals) == 5
    assert 'index_evictions_total{reason="cap"}' in signals[0][0]
    assert "Raise the cap and the memory limits of indexers and routers together" in SIZING


@pytest.mark.rule("OPS-58", "OPS-59")
def test_monitoring_says_what_is_ignored_or_not_scraped_without_a_word() -> None:
    assert "selects by other labels ignores these objects" in MONITORING
    assert "copy the Kubernetes namespace into a label `namespace`" in MONITORING
    assert "Engines are not scraped" in MONITORING


@pytest.mark.rule("OPS-39")
def test_the_dashboard_shows_the_intended_ratios() -> None:
    calls = "inferencecache_lookup_route_calls_total"
    shares = ROWS["Hints"][0].queries
    for name, matcher in {
        "prefix hits": 'reason_code="PREFIX_MATCH"',
        "hints": 'hint_used="true"',
        "by affinity": 'reason_code="AFFINITY_HINT"',
    }.items():
        part, whole = shares[name].split(" / ")
        assert part == f'sum(rate({calls}{{namespace="$namespace",{matcher}}}[5m]))'
        assert whole == f'sum(rate({calls}{{namespace="$namespace"}}[5m]))'
