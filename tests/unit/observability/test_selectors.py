"""Alerts and panels ask for what programs declare, by labels that it has."""

from __future__ import annotations

import pytest

from inferencecache.core.service import HistogramMeasure
from tests.support.promql import expressions, grouped_by, selectors
from tools.metrics_reference import MEASURES

OF_THE_SCRAPE = {"namespace", "pod"}
OF_HISTOGRAMS = {"le"}
OF_ENGINES = {
    f"vllm:external_prefix_cache_{what}{end}" for what in ("queries", "hits") for end in ("", "_total")
}
OF_PROCESSES = {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def declared() -> dict[str, set[str]]:
    """Labels by the names of all series."""
    labels: dict[str, set[str]] = {name: set() for name in OF_ENGINES | OF_PROCESSES}
    for measures in MEASURES.values():
        for measure in measures:
            labels[measure.series] = set(measure.labels)
            if isinstance(measure, HistogramMeasure):
                labels[f"{measure.series}_bucket"] = {*measure.labels, *OF_HISTOGRAMS}
    return labels


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_uses_declared_series_and_their_labels_only(expression: str) -> None:
    labels = declared()
    used = selectors(expression)
    assert used
    for selector in used:
        assert selector.name in labels
        assert selector.labels <= labels[selector.name] | OF_THE_SCRAPE
        assert grouped_by(expression) <= labels[selector.name] | OF_THE_SCRAPE


@pytest.mark.rule("OPS-35")
def test_every_series_of_ours_has_the_prefix_and_one_meaning() -> None:
    names = [measure.series for measures in MEASURES.values() for measure in measures]
    assert all(name.startswith("inferencecache_") for name in names)
    assert len(names) == len(set(names))


@pytest.mark.rule("OPS-37", "OPS-40", "OPS-43")
def test_the_series_of_the_contract_are_declared_with_their_labels() -> None:
    labels = declared()
    assert {
        "inferencecache_server_up": set(),
        "inferencecache_server_grpc_tls_enabled": set(),
        "inferencecache_index_entries": {"model"},
        "inferencecache_lookup_route_calls_total": {"model", "reason_code", "hint_used"},
        "inferencecache_lookup_route_latency_seconds": {"model"},
        "inferencecache_tenant_evictions_total": {"tenant_id", "reason"},
        "inferencecache_index_evictions_total": {"algorithm", "reason"},
        "inferencecache_backend_probe_result_total": {"backend", "stage", "result"},
        "inferencecache_backend_t2_hit_rate": {"backend"},
        "inferencecache_backend_t2_query_tokens_total": {"backend"},
        "inferencecache_replica_last_event_at": {"tenant", "replica"},
    }.items() <= labels.items()
    assert "inferencecache_backend_version_skew" not in labels


def test_every_measure_says_in_one_sentence_what_it_is_and_then_what_it_does_not_prove() -> None:
    for measures in MEASURES.values():
        for measure in measures:
            assert measure.text.endswith(".")
            assert not measure.unproven.endswith(".")
            assert measure.help == f"{measure.text} Does not prove {measure.unproven}."
            assert "|" not in measure.help
