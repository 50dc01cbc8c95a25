"""Recorded metrics pages become the stated statistics, and pages that say nothing are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferencecache.kvevent_subscriber.engine_metrics import (
    SGLANG,
    VLLM,
    PageError,
    StatsDeriver,
    StatsSettings,
    profile_of,
    read_page,
    start_time_of,
)
from inferencecache.kvevent_subscriber.load_signal import LoadSignal, Notice
from inferencecache.schemas.records import Stats
from tests.unit.subscriber.frames import FOLDER

EXPECT = json.loads((FOLDER / "metrics_expect.json").read_text())
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
LOAD = (
    "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n"
    "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 2\n"
)


def page_text(name: str) -> str:
    return (FOLDER / name).read_text()


@pytest.mark.rule(
    "SUB-131", "SUB-132", "SUB-133", "SUB-134", "SUB-135", "SUB-136", "SUB-137", "SUB-138", "SUB-139",
    "SUB-140", "SUB-141", "SUB-142", "SUB-143", "SUB-145", "SUB-W32", "SUB-W33", "SUB-W35", "SUB-W38",
)  # fmt: skip
@pytest.mark.parametrize("case", EXPECT["cases"], ids=lambda case: case["name"])
def test_recorded_pages_become_the_stated_statistics(case: dict[str, Any]) -> None:
    config = EXPECT["defaults"] | case["config"]
    profile = profile_of(config["hash_scheme"])
    deriver = StatsDeriver(
        profile,
        StatsSettings(
            config["engine_cache_size_bytes"], config["max_concurrency_ceiling"], config["cache_tier"]
        ),
    )
    for tick in case["ticks"]:
        arguments = (
            page_text(tick["file"]),
            case.get("content_type", PLAIN),
            profile,
            config["engine_model_name"],
        )
        if "error" in tick:
            reason = tick["error"].partition(" (")[0]
            with pytest.raises(PageError, match=reason):
                read_page(*arguments)
        else:
            stats = deriver.derive(read_page(*arguments))
            assert {name: getattr(stats, name) for name in tick["stats"]} == tick["stats"]


def test_the_load_is_told_as_numbers_of_requests_and_usage() -> None:
    stats = derive(page_text("metrics_sglang_dp_priority_hicache.txt"), "sglang")
    assert (stats.requests_running, stats.requests_waiting, stats.kv_usage) == (8, 3, 0.75)


def derive(text: str, scheme: str = "vllm", **settings: Any) -> Stats:
    profile = profile_of(scheme)
    return StatsDeriver(profile, StatsSettings(**settings)).derive(read_page(text, PLAIN, profile))


@pytest.mark.rule("SUB-W34", "SUB-142")
def test_a_tick_without_counters_leaves_the_baseline_of_the_hit_rate() -> None:
    deriver = StatsDeriver(VLLM, StatsSettings())
    rates = [
        deriver.derive(read_page(LOAD + counters(hits, queries), PLAIN, VLLM)).hit_rate
        for hits, queries in ((25, 100), (None, None), (95, 200))
    ]
    assert rates == [0.0, 0.0, 0.7]


def counters(hits: float | None, queries: float | None) -> str:
    if hits is None:
        return ""
    return (
        f"# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total {hits}\n"
        f"# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total {queries}\n"
    )


@pytest.mark.rule("SUB-132")
def test_of_both_spellings_of_a_counter_the_one_with_total_is_read_in_any_order() -> None:
    bare = "# TYPE vllm:external_prefix_cache_hits counter\nvllm:external_prefix_cache_hits 7\n"
    total = "# TYPE vllm:external_prefix_cache_hits_total counter\nvllm:external_prefix_cache_hits_total 5\n"
    assert derive(LOAD + bare + total).t2_hit_tokens == 5
    assert derive(LOAD + total + bare).t2_hit_tokens == 5
    assert derive(LOAD + bare).t2_hit_tokens == 7


@pytest.mark.rule("SUB-132")
def test_a_gauge_that_is_declared_otherwise_does_not_count() -> None:
    with pytest.raises(PageError, match="waiting absent"):
        derive(LOAD.replace("TYPE vllm:num_requests_waiting gauge", "TYPE vllm:num_requests_waiting untyped"))


@pytest.mark.rule("SUB-W38")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no recognised metric family"),
        ("<html>not found</html>", "no recognised metric family"),
        ("# TYPE sglang:cache_hit_rate gauge\nsglang:cache_hit_rate 0.5\n", "load gauges incomplete"),
        ("# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{a=} x\n", "cannot be parsed"),
    ],
)
def test_a_page_that_says_nothing_about_load_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PageError, match=reason):
        read_page(text, PLAIN, SGLANG)


def test_an_openmetrics_page_without_its_end_is_refused() -> None:
    text = page_text("metrics_vllm_openmetrics.txt").replace("# EOF", "")
    with pytest.raises(PageError, match="cannot be parsed"):
        read_page(text, "application/openmetrics-text; version=1.0.0", VLLM)


def test_the_engine_process_is_identified_by_its_start_time() -> None:
    text = LOAD + "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.79000000025e+09\n"
    assert read_page(text, PLAIN, VLLM).started == start_time_of(text) == "1790000000.25"
    assert start_time_of(LOAD) == ""


@pytest.mark.rule("SUB-141")
def test_absurd_values_do_not_overflow_a_record() -> None:
    text = LOAD + "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 1e300\n"
    assert derive(text, cache_size_bytes=10**12).cache_memory_bytes == 2**63 - 1


@pytest.mark.rule("SUB-W36", "SUB-147")
def test_a_load_signal_that_stops_is_two_warnings_and_one_error_and_says_when_it_is_back() -> None:
    signal = LoadSignal()
    notices: list[Notice | None] = [signal.delivered()]
    notices += [signal.failed("status 503") for _ in range(5)]
    notices.append(signal.delivered())
    assert [notice and notice.level for notice in notices] == [
        None, "warning", "warning", "error", "debug", "debug", "info",
    ]  # fmt: skip
    error, recovered = notices[3], notices[-1]
    assert error is not None
    assert recovered is not None
    assert (error.event, error.ticks, error.cause) == ("load_signal_stale", 3, "status 503")
    assert "age out" in error.text
    assert (recovered.event, recovered.ticks) == ("load_signal_recovered", 5)


@pytest.mark.rule("SUB-W37", "SUB-148")
def test_a_load_signal_that_never_was_says_that_nothing_was_sent() -> None:
    signal = LoadSignal()
    notices = [signal.failed("refused") for _ in range(3)]
    assert "sent nothing since start" in notices[-1].text


@pytest.mark.rule("SUB-147")
def test_one_or_two_missed_ticks_recover_silently() -> None:
    signal = LoadSignal()
    signal.failed("refused")
    signal.failed("refused")
    assert signal.delivered() is None
    assert signal.failures == 0
