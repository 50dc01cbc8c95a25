"""Makes the Grafana dashboard: what hints are worth, what the index holds, how fresh everything is.

Panels are declared as what they ask Prometheus; where they go follows from their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

PER_ROW: Final = 3
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_HERE: Final = 'namespace="$namespace"'
_CALLS: Final = "inferencecache_lookup_route_calls_total"


class Panel(NamedTuple):
    """`queries` are expressions by legend; `unit` is Grafana's name of it; `about` is its tooltip."""

    title: str
    unit: str
    queries: dict[str, str]
    about: str = ""


def _share(matcher: str) -> str:
    """Of all lookups [OPS-39]."""
    return f"sum(rate({_CALLS}{{{_HERE},{matcher}}}[5m])) / sum(rate({_CALLS}{{{_HERE}}}[5m]))"


def _quantile(quantile: float) -> str:
    buckets = f"inferencecache_lookup_route_latency_seconds_bucket{{{_HERE}}}"
    return f"histogram_quantile({quantile}, sum by (le) (rate({buckets}[5m])))"


def _by(labels: str, series: str, *, how: str = "sum", rate: bool = False, matcher: str = _HERE) -> str:
    selector = f"{series}{{{matcher}}}" if matcher else series
    return f"{how} by ({labels}) ({f'rate({selector}[5m])' if rate else selector})"


def _fullest(program: str, matcher: str = _HERE) -> str:
    size, limit = (
        _by("queue", f"inferencecache_{program}_queue_{what}", how="max", matcher=matcher)
        for what in ("size", "limit")
    )
    return f"{size} / {limit}"


ROWS: Final[dict[str, Sequence[Panel]]] = {
    "Hints": (
        Panel(
            "Share of lookups",
            "percentunit",
            {
                "prefix hits": _share('reason_code="PREFIX_MATCH"'),
                "hints": _share('hint_used="true"'),
                "by affinity": _share('reason_code="AFFINITY_HINT"'),
            },
            "Not that hints were followed: the engines' own hit rates say so.",
        ),
        Panel("Lookups by reason", "reqps", {"{{reason_code}}": _by("reason_code", _CALLS, rate=True)}),
        Panel(
            "Time of a lookup in the router",
            "s",
            {f"p{int(quantile * 100)}": _quantile(quantile) for quantile in (0.5, 0.95, 0.99)},
            "Without the network.",
        ),
    ),
    "Index": (
        Panel("Distinct prefixes", "short", {"{{model}}": _by("model", "inferencecache_index_entries")}),
        Panel(
            "Entries evicted",
            "ops",
            {
                "{{reason}} ({{algorithm}})": _by(
                    "algorithm, reason", "inferencecache_index_evictions_total", rate=True
                ),
                "quota of {{tenant_id}}": _by(
                    "tenant_id", "inferencecache_tenant_evictions_total", rate=True
                ),
            },
            "By the cap for long: the working set is larger than the index.",
        ),
        Panel(
            "Entries stored, by partition",
            "short",
            {"{{partition}}": _by("partition", "inferencecache_indexer_stored_entries", how="max")},
        ),
    ),
    "Freshness": (
        Panel(
            "Age of routers' views",
            "s",
            {"{{pod}}": _by("pod", "inferencecache_router_view_age_seconds", how="max")},
        ),
        Panel(
            "Indexers behind the log",
            "s",
            {"{{partition}}": _by("partition", "inferencecache_indexer_lag_seconds", how="max")},
        ),
        Panel(
            "Partitions owned",
            "short",
            {"{{pod}}": _by("pod", "inferencecache_indexer_partition_owned")},
            "The sum over pods is the number of partitions.",
        ),
        Panel(
            "Silence of replicas",
            "s",
            {
                "{{tenant}}/{{replica}}": "topk(10, time() - "
                + _by("tenant, replica", "inferencecache_replica_last_event_at", how="max")
                + ")"
            },
            "The ten that have been silent for longest.",
        ),
        Panel(
            "Queues, filled",
            "percentunit",
            {
                "router {{queue}}": _fullest("router"),
                "indexer {{queue}}": _fullest("indexer"),
                "sidecar {{queue}}": _fullest("subscriber", matcher=""),
            },
        ),
        Panel(
            "Begun again",
            "ops",
            {
                "views repaired": f"sum(rate(inferencecache_router_view_repairs_total{{{_HERE}}}[5m]))",
                "restored from the log": "sum(rate("
                f"inferencecache_indexer_restorations_from_log_total{{{_HERE}}}[5m]))",
                "sidecars": "sum(rate(inferencecache_subscriber_begins_total[5m]))",
            },
        ),
    ),
    "Engines": (
        Panel(
            "Batches stored",
            "ops",
            {
                "{{pod}}": _by(
                    "pod", "inferencecache_subscriber_published_batches_total", rate=True, matcher=""
                )
            },
        ),
        Panel(
            "Engines' messages lost for good",
            "ops",
            {
                "{{pod}}": _by(
                    "pod", "inferencecache_subscriber_unrecovered_messages_total", rate=True, matcher=""
                )
            },
            "What they said is uncertain in the index until engines say it again.",
        ),
        Panel(
            "Offload tier",
            "percentunit",
            {"{{backend}}": _by("backend", "inferencecache_backend_t2_hit_rate", how="max")},
            "Share of tokens looked up there that it served, since the engines started.",
        ),
    ),
    "Processes": (
        Panel("Memory", "bytes", {"{{pod}}": _by("pod", "process_resident_memory_bytes", how="max")}),
        Panel("Processor", "short", {"{{pod}}": _by("pod", "process_cpu_seconds_total", rate=True)}),
        Panel(
            "Functional probes that failed",
            "ops",
            {
                "{{backend}} {{stage}}": _by(
                    "backend, stage",
                    "inferencecache_backend_probe_result_total",
                    rate=True,
                    matcher=f'{_HERE},result="failed"',
                )
            },
        ),
    ),
}


def dashboard() -> dict[str, str]:
    """One file that Grafana imports."""
    document = {
        "uid": "inference-cache",
        "title": "inference-cache",
        "description": "Written by `make generate` from tools/dashboard.py.",
        "tags": ["inference-cache"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }
    return {"dashboard.json": json.dumps(document, indent=2) + "\n"}


def _variables() -> list[dict[str, Any]]:
    namespaces = "label_values(inferencecache_server_up, namespace)"
    return [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "namespace",
            "label": "Installation",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": namespaces, "refId": "namespaces"},
            "definition": namespaces,
            "refresh": 2,
        },
    ]


def _panels() -> Iterator[dict[str, Any]]:
    top, number = 0, 0
    width = _COLUMNS // PER_ROW
    for title, panels in ROWS.items():
        number += 1
        row = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": row, "panels": []}
        top += 1
        for place, panel in enumerate(panels):
            number += 1
            position = {"x": place % PER_ROW * width, "y": top + place // PER_ROW * _HEIGHT}
            yield _panel(number, panel, position | {"w": width, "h": _HEIGHT})
        top += -(-len(panels) // PER_ROW) * _HEIGHT


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
        for index, (legend, expression) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
