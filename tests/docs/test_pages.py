"""The site has a page for every topic, and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.reading import DOCS, ROOT
from tools.docs.__main__ import build

TOPICS = {
    "what it is and why": "index.md",
    "quick start: the demo": "start/demo.md",
    "quick start: compose": "start/compose.md",
    "quick start: a cluster": "start/cluster.md",
    "quick start: behind Envoy": "start/envoy.md",
    "quick start: behind the Gateway API": "start/gateway-api.md",
    "gateways": "gateways.md",
    "architecture": "concepts/architecture.md",
    "the log": "concepts/log.md",
    "CacheBackend": "concepts/cachebackend.md",
    "CachePolicy": "concepts/cachepolicy.md",
    "CacheTenant": "concepts/cachetenant.md",
    "CacheIndex": "concepts/cacheindex.md",
    "PromptTemplate and PDTopology": "concepts/templates-topologies.md",
    "fingerprint and hash schemes": "concepts/fingerprint.md",
    "ranking": "concepts/ranking.md",
    "deploy a CacheBackend": "tasks/cachebackend.md",
    "bind an engine": "tasks/bind-engine.md",
    "isolate tenants": "tasks/tenants.md",
    "tune lookup and eviction": "tasks/tune.md",
    "gRPC and NATS TLS": "tasks/tls.md",
    "monitor": "monitoring.md",
    "size": "sizing.md",
    "scale out": "tasks/scale-out.md",
    "change the layout": "layout.md",
    "upgrade": "tasks/upgrade.md",
    "replay": "replay.md",
    "debug a lost hint": "lost-hint.md",
    "troubleshoot": "tasks/troubleshoot.md",
    "CRD API": "reference/resources/cachebackend.md",
    "gRPC API": "reference/grpc.md",
    "reason codes": "reference/reason-codes.md",
    "metrics": "reference/metrics.md",
    "alerts": "reference/alerts.md",
    "CLI": "reference/cli.md",
    "doctor codes": "reference/doctor-codes.md",
    "event log": "reference/event-log.md",
    "configuration": "reference/configuration.md",
    "ownership": "ownership.md",
    "contributing": "contributing.md",
    "stability": "stability.md",
    "design record": "design.md",
}
_SHOWN = re.compile(r"```console\n\$ [^`]*\n(?![$ ])[^`]", re.DOTALL)
"""A block with what a command says."""


@pytest.mark.parametrize("page", TOPICS.values(), ids=TOPICS.keys())
def test_every_topic_has_a_page_in_the_menu(page: str) -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert f": {page}\n" in menu
    assert page == "contributing.md" or (DOCS / page).is_file()


def test_the_site_builds_with_every_link_leading_somewhere_and_asks_no_other_host(tmp_path: Path) -> None:
    build(tmp_path)
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?:[^\" >]+)", page.read_text())
        assert not loaded, page


@pytest.mark.parametrize("link", ["nowhere.md", "index.md#nowhere"])
def test_a_link_that_leads_nowhere_fails_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    config = tmp_path / "mkdocs.yml"
    config.write_text("site_name: small\nvalidation: {links: {anchors: warn}}\n")
    page.write_text("# Small\n\n[here](index.md#small)\n")
    build(tmp_path / "site", config)
    page.write_text(f"# Small\n\n[there]({link})\n")
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path / "site", config)


def test_readme_and_contributing_link_to_files_that_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name}: {target}"


def guides() -> list[str]:
    """Pages that the menu has under Start and Tasks."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    parts = [pages for part in menu for name, pages in part.items() if name in ("Start", "Tasks")]
    return [page for part in parts for named in part for page in named.values()]


def unexplained(text: str) -> list[str]:
    """Headings of parts with commands that lack what to expect, or what to do if it does not happen."""
    parts = [part for part in re.split(r"^#+ ", text, flags=re.MULTILINE) if "```console" in part]
    return [
        part.partition("\n")[0]
        for part in parts
        if not ("Expect" in part or _SHOWN.search(part)) or not re.search(r"\*If .+?,\*", part, re.DOTALL)
    ]


@pytest.mark.parametrize("guide", guides())
def test_each_step_of_a_guide_says_what_to_expect_and_what_to_do_otherwise(guide: str) -> None:
    assert not unexplained((DOCS / guide).read_text())


def test_a_step_without_an_outcome_or_a_way_out_is_found() -> None:
    step = "# Guide\n\n```console\n$ make demo\n```\n"
    assert unexplained(step) == unexplained(f"{step}\nExpect a view.\n") == ["Guide"]
    assert unexplained(f"{step}\n*If none comes,* wait.\n") == ["Guide"]
    assert not unexplained(f"{step}\nExpect a view.\n\n*If none comes,* wait.\n")
    assert len(guides()) > 15


def test_the_alerts_point_at_pages_of_the_site() -> None:
    rules = yaml.safe_load((ROOT / "deploy/base/observability/rules.yaml").read_text())
    headings = {
        heading.lower()
        for heading in re.findall(r"^## (.+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE)
    }
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook_url"].rpartition("#")[2] in headings
