"""What the controller and routers exchange over NATS: the aggregate, the policy set, the probe [OPS-92]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inferencecache.cli.doctor.facts import BusFacts, Counted, Refused, Unreachable, Unreadable
from inferencecache.cli.doctor.findings import Finding, found
from inferencecache.core.index.policy import UnsupportedPolicySchemaError
from inferencecache.core.policy import UnreadablePolicySetError, decode_policy_set

MOST_AGE_S: Final = 15.0
"""Owners put their counts every 5 s."""


def check_aggregate(facts: BusFacts) -> Iterator[Finding]:
    """Readable, complete and fresh; that nobody asked for credentials is said besides."""
    partitions = facts.aggregate.partitions
    match partitions:
        case Unreachable(reason):
            yield found("SN001", facts.address, reason)
        case Refused(reason):
            yield found("SN005", facts.address, reason)
        case Unreadable(reason):
            yield found("SN002", facts.address, reason)
        case _:
            problems = [
                f"partition {key} {problem}"
                for key, counted in sorted(partitions.items())
                if (problem := _problem_of(counted))
            ]
            if problems:
                yield found("SN002", facts.address, ", ".join(problems))
                return
            yield found("SN004", facts.address, f"the counts of {len(partitions)} partitions are fresh")
            if not facts.aggregate.with_credentials:
                yield found("SN003", facts.address, "NATS asked for no credentials")


def _problem_of(counted: Counted | None) -> str:
    if counted is None:
        return "has never been counted"
    if counted.problem:
        return f"is unreadable ({counted.problem})"
    return f"was counted {counted.age_s:.0f} s ago" if counted.age_s >= MOST_AGE_S else ""


def check_policy(facts: BusFacts) -> Iterator[Finding]:
    """Readable, what the cluster's objects say, and run by every router."""
    policy = facts.policy
    match policy:
        case Unreachable(reason):
            yield found("PL001", facts.address, reason)
        case Refused(reason):
            yield found("PL002", facts.address, f"reading it is refused: {reason}")
        case Unreadable(reason):
            yield found("PL003", facts.address, reason)
        case _:
            problem = _problem_of_value(policy.value) or _problem_of_wanted(policy.value, policy.wanted)
            behind = [each.id for each in policy.routers if each.policy_revision != policy.revision]
            if problem:
                yield found("PL003", facts.address, problem)
            elif policy.value is not None and behind:
                who = ", ".join(sorted(behind))
                yield found("PL003", facts.address, f"revision {policy.revision} is not run by router {who}")
            elif policy.value is None:
                yield found("PL002", facts.address, "there is no policy set, so defaults are in force")
            else:
                yield found("PL002", facts.address, f"revision {policy.revision} is in force")


def _problem_of_value(value: bytes | None) -> str:
    try:
        if value is not None:
            decode_policy_set(value)
    except (UnreadablePolicySetError, UnsupportedPolicySchemaError) as error:
        return f"the policy set cannot be used: {error}"
    return ""


def _problem_of_wanted(value: bytes | None, wanted: bytes | None) -> str:
    if wanted is None or (value or b"") == wanted:
        return ""
    if value is None:
        return "there is no policy set, although the cluster has objects for one"
    return "the policy set is not what the CachePolicy and CacheTenant objects of the cluster say"


def check_probe(facts: BusFacts) -> Iterator[Finding]:
    """A router answers; it is asked for nothing else."""
    match facts.probe:
        case Unreachable(reason):
            yield found("PB001", facts.address, reason)
        case Refused(reason):
            yield found("PB002", facts.address, f"asking is refused: {reason}")
        case Unreadable(reason):
            yield found("PB003", facts.address, reason)
        case answer:
            yield found("PB002", facts.address, f"router {answer.router} answers")
