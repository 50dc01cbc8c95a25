"""Tenants beyond their quota, and namespaces without exactly one policy [OPS-90]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from inferencecache.cli.doctor.checks.reading import backends_by_namespace, in_order, resource_of, unread
from inferencecache.cli.doctor.facts import KubeFacts, ReadFailed
from inferencecache.cli.doctor.findings import COVERAGE, TENANTS, Finding, found
from inferencecache.core.kube.backends import section, text
from inferencecache.core.kube.conditions import conditions_of
from inferencecache.core.kube.kinds import key_of


def check_tenants(facts: KubeFacts) -> Iterator[Finding]:
    """By the condition that the controller keeps."""
    if isinstance(facts.tenants, ReadFailed):
        yield unread("CacheTenant", facts.tenants, TENANTS)
        return
    for document in in_order(facts.tenants):
        resource = resource_of("CacheTenant", key_of(document))
        spec, status = section(document, "spec"), section(document, "status")
        tenant = text(spec, "tenantID")
        exceeded = conditions_of(status).get("QuotaExceeded") or {}
        if exceeded.get("status") == "True":
            entries = (status or {}).get("indexEntries", "unknown")
            quota = (section(spec, "quota") or {}).get("maxIndexEntries", "unset")
            problem = f"tenant {tenant} has {entries} entries, its quota is {quota}"
            yield found("CT001", resource, f"{problem}: {exceeded.get('message')}")
        else:
            yield found("CT002", resource, f"tenant {tenant} is within its quota or has none")


def check_coverage(facts: KubeFacts) -> Iterator[Finding]:
    """Only namespaces that have backends."""
    if isinstance(facts.backends, ReadFailed):
        yield unread("CacheBackend", facts.backends, COVERAGE)
        return
    if isinstance(facts.policies, ReadFailed):
        yield unread("CachePolicy", facts.policies, COVERAGE)
        return
    policies = Counter(key_of(document).namespace for document in facts.policies)
    for namespace, _ in backends_by_namespace(facts.backends):
        resource, count = f"namespace/{namespace}", policies[namespace]
        if count == 0:
            yield found("CP001", resource, "it has no CachePolicy: defaults apply")
        elif count == 1:
            yield found("CP002", resource, "it has one CachePolicy")
        else:
            yield found("CP003", resource, f"it has {count} CachePolicy objects")
