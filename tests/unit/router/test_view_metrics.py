"""Metrics that are read from the views and the work table when they are asked for."""

from __future__ import annotations

import time
from collections import Counter

from prometheus_client import CollectorRegistry

from inferencecache.core.index.work import Assigned, AssignedWork
from inferencecache.core.protocol.generations import Generations
from inferencecache.core.service import OTHER
from inferencecache.router.replica import PartitionReplica
from inferencecache.router.view_metrics import MAX_WORKING, ViewMetrics
from inferencecache.schemas.ids import ModelId, ReplicaId, TenantId

NAME = "inferencecache_router_assigned_work_tokens"


class Following:
    """A follower that follows nothing."""

    complete = False

    def __init__(self, work: AssignedWork | None) -> None:
        self.replicas: list[PartitionReplica] = []
        self.generations = Generations()
        self.swaps: Counter[str] = Counter()
        self.work = work


def registry_over(work: AssignedWork | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    ViewMetrics(registry, Following(work))
    return registry


def assign(work: AssignedWork, replica: str, tokens: float, tenant: str = "t") -> None:
    assigned = Assigned(TenantId(tenant), ModelId("m"), ReplicaId(replica), tokens)
    work.assign(assigned, time.monotonic())


def test_assigned_work_is_shown_by_model_and_replica_over_all_tenants() -> None:
    work = AssignedWork(decay_s=1e9)
    registry = registry_over(work)
    assign(work, "r1", 100.0)
    assign(work, "r1", 20.0, tenant="u")
    assign(work, "r2", 5.0)
    value = registry.get_sample_value(NAME, {"model": "m", "replica": "r1"})
    assert value is not None
    assert round(value, 3) == 120
    assert registry.get_sample_value(NAME, {"model": "m", "replica": "r3"}) is None


def test_a_thousand_busiest_replicas_have_series_of_their_own() -> None:
    work = AssignedWork(decay_s=1e9)
    registry = registry_over(work)
    for number in range(MAX_WORKING + 10):
        assign(work, f"r{number}", 10.0 if number < 10 else 20.0)
    (family,) = [family for family in registry.collect() if family.name == NAME]
    assert len(family.samples) == MAX_WORKING + 1
    other = {"model": OTHER, "replica": OTHER}
    value = registry.get_sample_value(NAME, other)
    assert value is not None
    assert round(value, 3) == 100


def test_a_router_that_ranks_without_load_has_no_such_metric() -> None:
    assert NAME not in {family.name for family in registry_over(None).collect()}
