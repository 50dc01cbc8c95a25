"""Makes the PrometheusRule from the plain rules file, so that there is one set of rules [OPS-44]."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from tools.manifests import manifest

RULES: Final = Path(__file__).resolve().parent.parent / "deploy" / "base" / "observability" / "rules.yaml"
_LABELS: Final = {
    "app.kubernetes.io/name": "inference-cache",
    "app.kubernetes.io/component": "observability",
    "prometheus": "k8s",
    "role": "alert-rules",
}


def prometheus_rule() -> dict[str, str]:
    """One file: the rules as the Prometheus operator takes them."""
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "inference-cache-alerts",
            "namespace": "inference-cache-system",
            "labels": dict(_LABELS),
        },
        "spec": rules,
    }
    return {"prometheus-rule.yaml": manifest([document], source="deploy/base/observability/rules.yaml")}
