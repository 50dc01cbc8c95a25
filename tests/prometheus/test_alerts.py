"""Every alert as promtool evaluates it, on series with a sample every 30 s."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tools import prometheus
from tools.alerts import RULES

pytestmark = pytest.mark.prometheus


def series(name: str, **labels: str) -> str:
    """A series of installation `a` unless a label says otherwise."""
    pairs = ({"namespace": "a"} | labels).items()
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in pairs) + "}"


def calls(reason: str, *, hint_used: str = "false", **labels: str) -> str:
    return series(
        "inferencecache_lookup_route_calls_total",
        **{"model": "m", "hint_used": hint_used, "reason_code": reason} | labels,
    )


def external(name: str) -> str:
    return series(f"vllm:external_prefix_cache_{name}", pod="engine-0")


def evictions(reason: str) -> str:
    return series("inferencecache_index_evictions_total", algorithm="lru", reason=reason)


def owned(pod: str) -> str:
    return series("inferencecache_indexer_partition_owned", pod=pod, partition="1.0")


def age(partition: str) -> str:
    return series("inferencecache_router_view_age_seconds", pod="r-0", partition=partition)


UP = series("inferencecache_server_up")
NO_HINT, TIMEOUT, MATCH = calls("NO_HINT"), calls("TIMEOUT"), calls("PREFIX_MATCH", hint_used="true")
ENTRIES = series("inferencecache_index_entries", model="m")
FAILED = series(
    "inferencecache_backend_probe_result_total", backend="team/b", stage="ingest", result="failed"
)
T2_RATE = series("inferencecache_backend_t2_hit_rate", backend="team/b")
T2_QUERIES = series("inferencecache_backend_t2_query_tokens_total", backend="team/b")
LAST_EVENT = series("inferencecache_replica_last_event_at", tenant="t", replica="r")
LAG = series("inferencecache_indexer_lag_seconds", pod="i-0", partition="1.0")
ALWAYS = "x80"

MINUTES_15, MINUTES_22, MINUTES_12 = "15m", "22m", "12m"

EMPTY = {UP: f"1+0{ALWAYS}", NO_HINT: f"0+300{ALWAYS}"}
HEALTHY = EMPTY | {ENTRIES: f"1000+0{ALWAYS}"}
OTHER_INSTALL = {name.replace('namespace="a"', 'namespace="b"'): values for name, values in HEALTHY.items()}


class Case(NamedTuple):
    """`fires` are the labels that the alerts of this name have, and words of their summaries."""

    alert: str
    series: dict[str, str]
    at: str = MINUTES_15
    fires: dict[str, str] | None = None
    words: tuple[str, ...] = ()


INSTALL = {"namespace": "a"}
POD = {"namespace": "a", "pod": "engine-0"}
MODEL = {"namespace": "a", "model": "m"}
STAGE = {"namespace": "a", "backend": "team/b", "stage": "ingest"}
EMPTY_WORDS = ("a is empty", "while the server is up")
POD_WORDS = ("a/engine-0", "zero hit tokens")
RISING = f"0+60000{ALWAYS}"

CASES = {
    "OPS-W13": [Case("IndexEmpty", EMPTY, fires=INSTALL, words=EMPTY_WORDS)],
    "OPS-W14": [
        Case("IndexEmpty", EMPTY | {UP: f"0+0{ALWAYS}"}),
        Case("IndexEmpty", {UP: f"1+0{ALWAYS}"}),
        Case("IndexEmpty", {UP: f"1+0{ALWAYS}", NO_HINT: f"300+0{ALWAYS}"}),
        Case("IndexEmpty", HEALTHY),
    ],
    "OPS-W15": [Case("IndexEmpty", EMPTY | OTHER_INSTALL, fires=INSTALL, words=EMPTY_WORDS)],
    "OPS-W16": [
        Case("LMCacheT2NoHits", {external(f"queries{end}"): RISING} | hits, fires=POD, words=POD_WORDS)
        for end in ("", "_total")
        for hits in ({}, {external(f"hits{end}"): f"500+0{ALWAYS}"})
    ],
    "OPS-W17": [
        case
        for end in ("", "_total")
        for case in (
            Case("LMCacheT2NoHits", {external(f"queries{end}"): f"0+15000{ALWAYS}"}),
            Case(
                "LMCacheT2NoHits",
                {external(f"queries{end}"): RISING, external(f"hits{end}"): f"0+30000{ALWAYS}"},
            ),
        )
    ],
    "OPS-W18": [
        Case(
            "LookupRouteDegenerate",
            {NO_HINT: f"0+300{ALWAYS}", MATCH: f"0+10{ALWAYS}"},
            fires=MODEL,
            words=("model m", "NO_HINT > 90 %"),
        ),
        Case("LookupRouteDegenerate", {NO_HINT: f"0+150{ALWAYS}", MATCH: f"0+150{ALWAYS}"}),
        Case("LookupRouteDegenerate", {NO_HINT: f"0+1{ALWAYS}"}),
    ],
    "OPS-W19": [
        Case(
            "LookupRouteHighTimeout",
            {TIMEOUT: f"0+300{ALWAYS}", MATCH: f"0+1500{ALWAYS}"},
            fires=MODEL,
            words=("model m", "TIMEOUT > 5 %"),
        ),
        Case("LookupRouteHighTimeout", {TIMEOUT: f"0+10{ALWAYS}", MATCH: f"0+1500{ALWAYS}"}),
        Case("LookupRouteHighTimeout", {TIMEOUT: f"0+15{ALWAYS}"}),
    ],
    "OPS-W20": [
        Case(
            "IndexEvictionsSpike",
            {evictions("cap"): f"0+450{ALWAYS}"},
            MINUTES_22,
            fires={"namespace": "a", "algorithm": "lru"},
            words=("lru",),
        ),
        Case("IndexEvictionsSpike", {evictions("cap"): f"0+300{ALWAYS}"}, MINUTES_22),
        Case("IndexEvictionsSpike", {evictions("ttl"): f"0+600{ALWAYS}"}, MINUTES_22),
    ],
    "OPS-W21": [
        Case(
            "ServerProbeFail",
            {FAILED: f"0+1{ALWAYS}"},
            MINUTES_12,
            fires=STAGE,
            words=("team/b", "install a", "stage ingest"),
        )
    ],
    "OPS-W22": [
        Case("ServerProbeFail", {FAILED: f"0x10 1{ALWAYS}"}),
        Case("ServerProbeFail", {FAILED: f"_x10 1{ALWAYS}"}),
    ],
    "OPS-48": [
        Case("LookupRouteDegenerate", {NO_HINT: f"300+0{ALWAYS}"}),
        Case("LookupRouteHighTimeout", {TIMEOUT: f"300+0{ALWAYS}"}),
    ],
    # A bypassed backend is not probed any more: the counter stands still.
    "OPS-53": [Case("ServerProbeFail", {FAILED: "0+1x20 20x30"}, MINUTES_22)],
    "OPS-50": [
        Case(
            "KvEventsStaleness",
            {LAST_EVENT: f"600+0{ALWAYS}"},
            fires={"namespace": "a", "tenant": "t", "replica": "r"},
            words=("Replica r", "tenant t"),
        ),
        # The start of the test's time is 0, so this replica's last event is never more than 60 s old.
        Case("KvEventsStaleness", {LAST_EVENT: f"-60+30{ALWAYS}"}),
    ],
    "OPS-51": [
        Case(
            "BackendT2Degraded",
            {T2_RATE: f"0+0{ALWAYS}", T2_QUERIES: RISING},
            fires={"namespace": "a", "backend": "team/b"},
            words=("team/b", "serves nothing"),
        ),
        Case("BackendT2Degraded", {T2_RATE: f"0.01+0{ALWAYS}", T2_QUERIES: RISING}),
        Case("BackendT2Degraded", {T2_RATE: f"0+0{ALWAYS}", T2_QUERIES: f"0+15000{ALWAYS}"}),
    ],
}

OF_THE_LOG = [
    Case(
        "PartitionUnowned",
        {owned("i-0"): f"0+0{ALWAYS}", owned("i-1"): f"0+0{ALWAYS}"},
        fires={"namespace": "a", "partition": "1.0"},
        words=("partition 1.0",),
    ),
    Case("PartitionUnowned", {owned("i-0"): f"0+0{ALWAYS}", owned("i-1"): f"1+0{ALWAYS}"}),
    Case(
        "IndexerLagging",
        {LAG: f"6+0{ALWAYS}"},
        fires={"namespace": "a", "partition": "1.0"},
        words=("5 s behind", "partition 1.0"),
    ),
    Case("IndexerLagging", {LAG: f"5+0{ALWAYS}"}),
    Case(
        "RouterViewStale",
        {age("1.0"): f"1+0{ALWAYS}", age("1.1"): f"16+0{ALWAYS}"},
        fires={"namespace": "a", "pod": "r-0"},
        words=("a/r-0", "15 s old"),
    ),
    Case("RouterViewStale", {age("1.0"): f"15+0{ALWAYS}"}),
]


def rules() -> dict[str, dict[str, Any]]:
    """Every rule by the name of its alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def of_chapter() -> list[Any]:
    """Every case of the chapter, called by its id."""
    return [
        pytest.param(case, id=f"{name}-{number}")
        for name, cases in CASES.items()
        for number, case in enumerate(cases)
    ]


@pytest.mark.rule("OPS-46", "OPS-47", "OPS-48", "OPS-49", "OPS-50", "OPS-51", "OPS-53", "IDX-200")
@pytest.mark.rule("OPS-W13", "OPS-W14", "OPS-W15", "OPS-W16", "OPS-W17")
@pytest.mark.rule("OPS-W18", "OPS-W19", "OPS-W20", "OPS-W21", "OPS-W22")
@pytest.mark.parametrize("case", [*of_chapter(), *OF_THE_LOG])
def test_the_alert_fires_exactly_when_it_should(case: Case, tmp_path: Path) -> None:
    rule = rules()[case.alert]
    expected = []
    if case.fires is not None:
        summary = rule["annotations"]["summary"]
        for name, value in case.fires.items():
            summary = summary.replace("{{ $labels." + name + " }}", value)
        assert all(word in summary for word in case.words), summary
        annotations = {"summary": summary, "runbook_url": rule["annotations"]["runbook_url"]}
        expected = [{"exp_labels": rule["labels"] | case.fires, "exp_annotations": annotations}]
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": name, "values": text} for name, text in case.series.items()],
                "alert_rule_test": [{"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}],
            }
        ],
    }
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(document))
    tested = subprocess.run(
        [str(prometheus.program("promtool")), "test", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_fires_in_one_of_these_cases() -> None:
    cases = [*(case for of_rule in CASES.values() for case in of_rule), *OF_THE_LOG]
    assert {case.alert for case in cases if case.fires is not None} == rules().keys()


def test_promtool_finds_nothing_to_complain_about() -> None:
    checked = subprocess.run(
        [str(prometheus.program("promtool")), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
