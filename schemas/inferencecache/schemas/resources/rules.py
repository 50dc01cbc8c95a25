"""Rules about one resource that its types alone do not enforce.

The API server's schema and the admission webhooks refuse such objects; without a cluster nobody does
but whoever calls this. An object that got past them is still read and resolved, each bad value as the
rules of policy values say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.resources.cache_policy import CHAIN_RULE, CachePolicy, CachePolicySpec
from inferencecache.schemas.resources.cache_tenant import CacheTenant
from inferencecache.schemas.resources.durations import parse_duration
from inferencecache.schemas.resources.kinds import AnyResource
from inferencecache.schemas.resources.objects import DECIMAL_PATTERN
from inferencecache.schemas.resources.pd_topology import PDTopology, PDTopologySpec
from inferencecache.schemas.resources.prompt_template import PromptTemplate

_DECIMAL: Final = re.compile(DECIMAL_PATTERN, re.ASCII)


class Violation(NamedTuple):
    """`kind` is the cause in the API's words, `path` names the field from the object's root [ADM-09]."""

    kind: Literal["Required", "Invalid", "Forbidden", "NotSupported", "Duplicate"]
    path: str
    problem: str


def violations(resource: AnyResource) -> list[Violation]:
    """All of them, in the order of the fields [ADM-117, ADM-118, ADM-121, CRD-11, CRD-110, IDX-126]."""
    return list(_violations(resource))


def _violations(resource: AnyResource) -> Iterator[Violation]:
    match resource:
        case CachePolicy():
            yield from _of_policy(resource.spec)
        case CacheTenant():
            if resource.spec.tenant_id == PROBE_TENANT:
                problem = f"{PROBE_TENANT} is reserved for the functional self-test; choose another id"
                yield Violation("Invalid", "spec.tenantID", problem)
        case PromptTemplate():
            yield from _duplicates("spec.slots", [slot.name for slot in resource.spec.slots or ()])
        case PDTopology():
            spec = resource.spec or PDTopologySpec()
            yield from _duplicates("spec.prefillPools", [pool.name for pool in spec.prefill_pools or ()])
            yield from _duplicates("spec.decodePools", [pool.name for pool in spec.decode_pools or ()])
            types = [type_.name for type_ in spec.accelerator_types or ()]
            yield from _duplicates("spec.acceleratorTypes", types)


def _of_policy(spec: CachePolicySpec) -> Iterator[Violation]:
    if spec.eviction_ttl is not None and (problem := _problem_of_ttl(spec.eviction_ttl)):
        yield Violation("Invalid", "spec.evictionTTL", problem)
    yield from _of_decimal("spec.routingFloorScore", spec.routing_floor_score)
    strategy = spec.strategy
    if strategy is not None:
        if strategy.enable_chain_matching is False and strategy.require_chain:
            yield Violation("Invalid", "spec.strategy.requireChain", CHAIN_RULE)
        yield from _of_decimal("spec.strategy.loadWeight", strategy.load_weight)


def _problem_of_ttl(text: str) -> str:
    try:
        if parse_duration(text) > 0:
            return ""
    except ValueError as error:
        return str(error)
    return f"{text} is not more than 0; write a longer time, or leave the field out for 30m"


def _of_decimal(path: str, text: str | None) -> Iterator[Violation]:
    if text is not None and not _DECIMAL.fullmatch(text):
        problem = (
            f"{text!r} is not a decimal number of the form 0.1: digits only, no sign, no exponent, no "
            "leading zeros, at most 8 digits before the point and 6 after it"
        )
        yield Violation("Invalid", path, problem)


def _duplicates(path: str, names: list[str]) -> Iterator[Violation]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Violation(
                "Duplicate", f"{path}[{name}]", f"{name!r} is there {count} times; names are unique"
            )
