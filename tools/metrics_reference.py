"""Makes the reference of all metrics from their declarations in the programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Final

from inferencecache.controller.admission import metrics as admission
from inferencecache.controller.backend import probe
from inferencecache.controller.index import tier2_series
from inferencecache.controller.kube import writing
from inferencecache.core.service import Measure, queue_measures
from inferencecache.indexer import metrics as indexer
from inferencecache.kvevent_subscriber import telemetry
from inferencecache.router import metrics as router
from inferencecache.router import view_metrics
from inferencecache.router.gateway import metrics as gateway


def _declared(*modules: ModuleType) -> Iterator[Measure]:
    """In the order of their declaration, in a module's constants and tuples of them."""
    for module in modules:
        for value in vars(module).values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Measure):
                    yield each


MEASURES: Final[Mapping[str, Sequence[Measure]]] = {
    "router": (*_declared(router, view_metrics, gateway), *queue_measures("router")),
    "indexer": (*_declared(indexer), *queue_measures("indexer")),
    "subscriber": (*_declared(telemetry), *queue_measures("subscriber")),
    "controller": (
        *_declared(admission, probe, tier2_series, writing),
        *queue_measures("controller"),
    ),
}
"""Everything that each program exports, beside what is known of any process."""

_ABOUT: Final = {
    "router": "Deployment `inference-cache-server`, port `http`.",
    "indexer": "StatefulSet `inference-cache-indexer`, port `http`.",
    "subscriber": "The container `kvevent-subscriber` of engine pods, port `kvevents-http`.",
    "controller": "Deployment `inference-cache-controller-manager`, port `metrics`.",
}
_INTRODUCTION: Final = """\
# Metrics

What each program exports on `/metrics`. A series with labels appears with its first observation; names that
callers choose, `model` and `tenant_id`, become labels only when the index knows them, and at most 1,000 of
each, then `other`. Counters and histograms add up over replicas of a program. `process_…` series of the
runtime come on top and are not part of the contract. What to look at first is in
[monitoring](../monitoring.md).
"""


def metrics_page() -> dict[str, str]:
    """One page."""
    lines = [_INTRODUCTION]
    for program, measures in MEASURES.items():
        lines += [f"## {program}", "", _ABOUT[program], ""]
        lines += ["| Series | Type | Labels | Meaning | Does not prove |", "|---|---|---|---|---|"]
        lines += [_row(measure) for measure in measures]
        lines.append("")
    return {
        "metrics.md": "\n".join([*lines, "Written by `make generate` from the programs' declarations.", ""])
    }


def _row(measure: Measure) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"| `{measure.series}` | {measure.kind} | {labels} | {measure.text} | {measure.unproven} |"
