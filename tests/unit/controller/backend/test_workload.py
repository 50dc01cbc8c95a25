"""Whether a Deployment does what is wanted, and what a backend without servers makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.controller.backend.readiness import degraded_by, progressing_by
from inferencecache.controller.backend.workload import workload_verdict
from inferencecache.core.kube.conditions import Verdict

rule = pytest.mark.rule


def verdict_of(wanted: int | None = 1, updated: int = 1, available: int = 1, observed: int = 2) -> Verdict:
    status = {"observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available}
    spec: dict[str, Any] = {} if wanted is None else {"replicas": wanted}
    return workload_verdict({"metadata": {"generation": 2}, "spec": spec, "status": status})


@rule("CTL-52", "CTL-150")
@pytest.mark.parametrize(
    ("facts", "status", "reason", "message"),
    [
        ({"wanted": 0}, "False", "ScaledToZero", "the backend runs zero replicas"),
        ({}, "True", "BackendReady", "1/1 replicas available"),
        ({"wanted": None}, "True", "BackendReady", "1/1 replicas available"),
        ({"updated": 2, "available": 2}, "True", "BackendReady", "2/1 replicas available"),
        ({"observed": 1}, "False", "RolloutInProgress", "1/1 replicas updated"),
        ({"updated": 0}, "False", "RolloutInProgress", "0/1 replicas updated"),
        ({"wanted": None, "available": 0}, "False", "ReplicasUnavailable", "0/1 replicas available"),
        (
            {"wanted": 3, "updated": 3, "available": 2},
            "False",
            "ReplicasUnavailable",
            "2/3 replicas available",
        ),
    ],
)
def test_a_deployment_is_judged_by_what_was_reported_of_it(
    facts: dict[str, Any], status: str, reason: str, message: str
) -> None:
    assert verdict_of(**facts) == (status, reason, message)


@rule("CTL-52")
def test_a_deployment_of_which_nothing_was_reported_rolls_out() -> None:
    new = {"metadata": {"generation": 1}, "spec": {}}
    assert workload_verdict(new) == ("False", "RolloutInProgress", "0/1 replicas updated")


@rule("CTL-143", "CTL-150")
def test_only_missing_replicas_degrade() -> None:
    missing = verdict_of(available=0)
    assert degraded_by(missing) == ("True", "ReplicasUnavailable", "0/1 replicas available")
    for other in (verdict_of(), verdict_of(wanted=0), verdict_of(updated=0)):
        assert degraded_by(other)[:2] == ("False", "NotDegraded")


@rule("CTL-144", "CTL-150")
@pytest.mark.parametrize(
    ("ready", "progressing"),
    [
        (("True", "BackendReady"), ("False", "Synced")),
        (("True", "ConnectorReady"), ("False", "Synced")),
        (("False", "RolloutInProgress"), ("True", "RolloutInProgress")),
        (("False", "AwaitingFirstKVEvent"), ("True", "AwaitingFirstKVEvent")),
        (("False", "ReplicasUnavailable"), ("False", "Degraded")),
        (("False", "NoKVEventsObserved"), ("False", "NoKVEventsObserved")),
        (("Unknown", "ConnectorInjectionUnverified"), ("False", "ConnectorInjectionUnverified")),
    ],
)
def test_progress_follows_from_readiness(ready: tuple[str, str], progressing: tuple[str, str]) -> None:
    assert progressing_by(Verdict(*ready, "why")) == (*progressing, "why")
