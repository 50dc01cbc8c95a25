"""The alert rules and scrape objects as files, without Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tools.alerts import RULES, runbooks_page, with_runbooks

ROOT = Path(__file__).parents[3]
FOLDER = RULES.parent


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
OF_CHAPTER = {
    "IndexEmpty": ("inferencecache-health", "2m", "critical"),
    "LMCacheT2NoHits": ("inferencecache-health", "5m", "warning"),
    "LookupRouteDegenerate": ("inferencecache-routing", "5m", "warning"),
    "LookupRouteHighTimeout": ("inferencecache-routing", "5m", "warning"),
    "IndexEvictionsSpike": ("inferencecache-capacity", "10m", "info"),
    "ServerProbeFail": ("inferencecache-cachebackend", "5m", "critical"),
    "KvEventsStaleness": ("inferencecache-health", "2m", "warning"),
    "BackendT2Degraded": ("inferencecache-cachebackend", "5m", "warning"),
}
OF_THE_LOG = {"PartitionUnowned", "IndexerLagging", "RouterViewStale"}


@pytest.mark.rule("OPS-44")
def test_both_forms_of_the_rules_are_the_same() -> None:
    [rule] = documents("prometheus-rule.yaml")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    assert (rule["kind"], rule["metadata"]["name"]) == ("PrometheusRule", "inference-cache-alerts")


@pytest.mark.rule("OPS-45", "OPS-46", "OPS-50", "OPS-51")
def test_every_rule_of_the_contract_is_there_in_its_group_and_with_its_severity() -> None:
    found = {
        rule["alert"]: (group["name"], rule["for"], rule["labels"]["severity"])
        for group in GROUPS
        for rule in group["rules"]
    }
    assert {name: found[name] for name in OF_CHAPTER} == OF_CHAPTER
    assert found.keys() - OF_CHAPTER == OF_THE_LOG
    assert "VersionSkewDetected" not in found


@pytest.mark.rule("OPS-45", "OPS-52")
@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_has_all_labels_one_sentence_and_a_section_in_the_runbooks(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"].keys() == {"severity", "component"}
    assert rule["labels"]["component"] == "inference-cache"
    assert rule["annotations"].keys() == {"summary", "runbook_url"}
    assert re.fullmatch(r"[A-Z].*\.", rule["annotations"]["summary"])
    assert rule["annotations"]["runbook_url"] == f"{runbooks_page()}#{name.lower()}"
    assert f"\n## {name}\n" in (ROOT / "docs/runbooks.md").read_text()


@pytest.mark.rule("OPS-45")
@pytest.mark.parametrize(
    ("settings", "page"),
    [
        ("docs_dir: docs", "docs/runbooks.md"),
        ("docs_dir: docs\nsite_url: https://docs.example/a", "https://docs.example/a/runbooks/"),
        (
            "docs_dir: docs\nsite_url: https://docs.example/\nuse_directory_urls: false",
            "https://docs.example/runbooks.html",
        ),
    ],
)
def test_links_to_runbooks_follow_from_the_url_of_the_site(tmp_path: Path, settings: str, page: str) -> None:
    (tmp_path / "mkdocs.yml").write_text(settings)
    assert runbooks_page(tmp_path / "mkdocs.yml") == page
    told = yaml.safe_load(with_runbooks(RULES.read_text(), page))
    links = [rule["annotations"]["runbook_url"] for group in told["groups"] for rule in group["rules"]]
    assert links == [f"{page}#{name.lower()}" for name in ALERTS]


@pytest.mark.rule("OPS-45")
def test_without_a_site_a_link_names_a_page_of_the_repository() -> None:
    page = runbooks_page()
    assert urlsplit(page).scheme in ("http", "https") or (ROOT / page).is_file()


@pytest.mark.rule("OPS-45")
def test_groups_are_evaluated_every_30_s_and_nothing_names_a_cloud() -> None:
    assert {group["interval"] for group in GROUPS} == {"30s"}
    assert not re.search(r"\b(aws|azure|gcp|gke|eks|aks)\b", RULES.read_text(), re.IGNORECASE)


@pytest.mark.rule("OPS-54", "OPS-55", "OPS-57")
def test_scrape_objects_select_what_the_contract_names() -> None:
    found = {}
    for document in documents("scrape.yaml"):
        spec = document["spec"]
        [endpoint] = spec.get("endpoints") or spec["podMetricsEndpoints"]
        assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("30s", "10s")
        namespaces = spec["namespaceSelector"].get("matchNames", "all")
        labels = spec["selector"].get("matchLabels", {})
        found[document["kind"], document["metadata"]["name"]] = (
            labels.get("app.kubernetes.io/component", labels.get("inferencecache.io/lmcache-mp-metrics")),
            namespaces,
            endpoint["port"] + endpoint["path"],
        )
    own = ["inference-cache-system"]
    assert found == {
        ("ServiceMonitor", "inference-cache-server"): ("server", own, "http/metrics"),
        ("PodMonitor", "inference-cache-indexer"): ("indexer", own, "http/metrics"),
        ("PodMonitor", "inference-cache-controller"): ("controller", own, "metrics/metrics"),
        ("PodMonitor", "inference-cache-subscriber"): (None, "all", "kvevents-http/metrics"),
        ("PodMonitor", "inference-cache-lmcache-mp"): ("true", "all", "lmcache-http/metrics"),
    }


@pytest.mark.rule("OPS-54")
def test_every_object_is_in_the_installs_namespace_with_the_labels_that_prometheus_selects() -> None:
    for document in [*documents("scrape.yaml"), *documents("prometheus-rule.yaml")]:
        labels = {
            "app.kubernetes.io/name": "inference-cache",
            "app.kubernetes.io/component": "observability",
            "prometheus": "k8s",
        }
        if document["kind"] == "PrometheusRule":
            labels["role"] = "alert-rules"
        assert document["metadata"]["labels"] == labels
        assert document["metadata"]["namespace"] == "inference-cache-system"
