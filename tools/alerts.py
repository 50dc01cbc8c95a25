"""Makes the PrometheusRule from the plain rules file, so that there is one set of rules [OPS-44].

The rules are written by hand but for `runbook_url`, which names where the documentation is: the `site_url` of
mkdocs.yml, and the page in the repository as long as that says none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from tools.manifests import manifest

ROOT: Final = Path(__file__).resolve().parent.parent
RULES: Final = ROOT / "deploy" / "base" / "observability" / "rules.yaml"
_SITE: Final = ROOT / "mkdocs.yml"
_PAGE: Final = "runbooks"
_ALERT: Final = re.compile(r"^\s*- alert: (\w+)$")
_LINK: Final = re.compile(r"^(\s*runbook_url: ).*$")
_LABELS: Final = {
    "app.kubernetes.io/name": "inference-cache",
    "app.kubernetes.io/component": "observability",
    "prometheus": "k8s",
    "role": "alert-rules",
}


def runbooks_page(site: Path = _SITE) -> str:
    """Where the runbooks are read: on the documentation's site, or in the repository where it has none."""
    settings: dict[str, Any] = yaml.safe_load(site.read_text())
    url = settings.get("site_url")
    if not url:
        return f"{settings['docs_dir']}/{_PAGE}.md"
    return f"{url.rstrip('/')}/{_PAGE}{'/' if settings.get('use_directory_urls', True) else '.html'}"


def with_runbooks(rules: str, page: str) -> str:
    """The text of the rules, in which each alert names its section of `page` [OPS-45]."""
    lines, alert = [], ""
    for line in rules.splitlines(keepends=True):
        if begun := _ALERT.match(line):
            alert = begun[1]
        lines.append(_LINK.sub(rf"\g<1>{page}#{alert.lower()}", line))
    return "".join(lines)


def alert_rules() -> dict[str, str]:
    """Two files: the rules with their links, and the same as the Prometheus operator takes them."""
    text = with_runbooks(RULES.read_text(), runbooks_page())
    rules: dict[str, Any] = yaml.safe_load(text)
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
    operators = manifest([document], source="deploy/base/observability/rules.yaml")
    return {"rules.yaml": text, "prometheus-rule.yaml": operators}
