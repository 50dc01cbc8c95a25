"""The configuration of Prometheus that ships with Docker Compose."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import prometheus
from tools.alerts import RULES

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "deploy" / "compose" / "prometheus.yaml"
WITH_METRICS = ("router", "indexer", "sidecar", "engine")


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    return services


def test_prometheus_takes_it_with_the_rules_that_compose_puts_beside_it(tmp_path: Path) -> None:
    mounts = dict(volume.split(":")[:2] for volume in compose()["prometheus"]["volumes"])
    [in_container] = yaml.safe_load(CONFIGURATION.read_text())["rule_files"]
    assert mounts[f"./{RULES.relative_to(ROOT)}"] == in_container
    here = tmp_path / "prometheus.yaml"
    here.write_text(CONFIGURATION.read_text().replace(in_container, str(RULES)))
    checked = subprocess.run(
        [str(prometheus.program("promtool")), "check", "config", "--lint-fatal", str(here)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_service_that_exports_metrics_is_a_target() -> None:
    [job] = yaml.safe_load(CONFIGURATION.read_text())["scrape_configs"]
    [static] = job["static_configs"]
    scraped = {target.partition(":")[0] for target in static["targets"]}
    assert scraped == {name for name in compose() if name.startswith(WITH_METRICS)}
