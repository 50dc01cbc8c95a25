"""Metrics are declared, so that the reference has them all."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from inferencecache.core.service import Measure
from tools.metrics_reference import MEASURES

ROOT = Path(__file__).parents[3]
SERVICES = ("router", "indexer", "kvevent-subscriber", "controller")
MADE_BY_HAND = re.compile(r"import [^\n]*\b(Counter|Gauge|Histogram|Summary|\w+MetricFamily)\b")


def modules(service: str) -> list[Path]:
    return sorted((ROOT / "services" / service / "inferencecache").rglob("*.py"))


@pytest.mark.parametrize("service", SERVICES)
def test_no_program_makes_a_metric_by_hand(service: str) -> None:
    for path in modules(service):
        lines = (line for line in path.read_text().splitlines() if "prometheus_client" in line)
        assert not any(MADE_BY_HAND.search(line) for line in lines), path


@pytest.mark.parametrize("service", SERVICES)
def test_every_declaration_is_in_the_reference(service: str) -> None:
    known = {measure for measures in MEASURES.values() for measure in measures}
    declaring = [path for path in modules(service) if "Measure(" in path.read_text()]
    assert declaring
    for path in declaring:
        parts = path.relative_to(ROOT / "services" / service).with_suffix("").parts
        module = import_module(".".join(parts))
        declared = {value for value in vars(module).values() if isinstance(value, Measure)}
        assert declared <= known, path
