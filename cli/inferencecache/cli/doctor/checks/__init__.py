"""The checks: pure functions from facts to findings, in one file for each thing that is looked at."""

from __future__ import annotations

from inferencecache.cli.doctor.checks.backends import check_backends
from inferencecache.cli.doctor.checks.bus import check_aggregate, check_policy, check_probe
from inferencecache.cli.doctor.checks.engines import check_engines
from inferencecache.cli.doctor.checks.intent import check_coverage, check_tenants
from inferencecache.cli.doctor.checks.pods import check_injection, check_orphans
from inferencecache.cli.doctor.checks.routers import check_routers
from inferencecache.cli.doctor.checks.server import check_server
from inferencecache.cli.doctor.checks.streams import check_streams
from inferencecache.cli.doctor.facts import Facts
from inferencecache.cli.doctor.findings import Report


def judge(facts: Facts) -> Report:
    """All checks that the facts are there for, in their order [OPS-78]."""
    findings = [] if facts.server is None else [*check_server(facts.server)]
    if facts.bus is not None:
        findings += [*check_aggregate(facts.bus), *check_policy(facts.bus), *check_probe(facts.bus)]
    if facts.kube is not None:
        findings += [
            *check_backends(facts.kube),
            *check_injection(facts.kube),
            *check_orphans(facts.kube),
            *check_tenants(facts.kube),
            *check_coverage(facts.kube),
        ]
    if facts.bus is not None:
        findings += [*check_streams(facts.bus), *check_routers(facts.bus)]
    findings += check_engines(facts.engines, facts.router_block_sizes)
    return Report(tuple(findings))
