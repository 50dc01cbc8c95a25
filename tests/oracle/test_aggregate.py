"""The model's aggregate is that of the worked cases [IDX section 22.7]."""

from __future__ import annotations

import pytest

from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.records import Stats
from tests.oracle.aggregate import Document, naive_aggregate
from tests.oracle.indexes import NaiveIndex
from tests.oracle.story import Story


class Told(Story):
    """A story whose aggregate is looked at."""

    def __init__(self) -> None:
        self._naive = NaiveIndex()
        super().__init__(self._naive)

    def aggregate(self) -> Document:
        return naive_aggregate(self._naive.folded)


@pytest.fixture
def told() -> Told:
    return Told()


def _columns(rows: list[Document], *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_replicas_and_tenants_are_told_over_all_their_models(told: Told) -> None:
    told.report("replica-a", Stats(cache_memory_bytes=100, hit_rate=0.8), tenant="tenant-a", model="m1")
    told.given("replica-a{p1:1} tenant=tenant-a model=m1; replica-a{p2:1} tenant=tenant-a model=m2")
    told.given("replica-b{p3:1} tenant=tenant-b model=m1 hit=0.6")
    document = told.aggregate()
    assert document["totalPrefixes"] == 3
    assert _columns(document["replicas"], "tenant", "replicaId", "prefixCount", "statsReported") == [
        ("tenant-a", "replica-a", 2, True),
        ("tenant-b", "replica-b", 1, True),
    ]
    assert document["replicas"][0]["cacheMemoryBytes"] == 100
    names = ("tenantId", "indexEntries", "hitRate", "hitRateReported", "memoryUsed")
    assert _columns(document["tenants"], *names) == [
        ("tenant-a", 2, 0.8, True, 0),
        ("tenant-b", 1, 0.6, True, 0),
    ]


def test_what_reports_no_statistics_says_so(told: Told) -> None:
    told.given("vllm-0{p:1, q:1} tenant=tenant-a")
    document = told.aggregate()
    names = ("prefixCount", "statsReported", "lastUpdate")
    assert _columns(document["replicas"], *names) == [(2, False, 0)]
    assert _columns(document["tenants"], "indexEntries", "hitRateReported") == [(2, False)]


def test_the_total_is_the_sum_over_tenants(told: Told) -> None:
    told.given("r1{a:1} tenant=team-a; r2{a:1} tenant=team-a; r3{c:1} tenant=team-b; r4{z:1} tenant=")
    told.given(f"p{{pp:16}} tenant={PROBE_TENANT} hit=0.5")
    document = told.aggregate()
    assert _columns(document["tenants"], "tenantId", "indexEntries") == [
        ("", 1),
        ("team-a", 1),
        ("team-b", 1),
    ]
    assert document["totalPrefixes"] == 3
    assert sum(row["prefixCount"] for row in document["replicas"]) == 4
