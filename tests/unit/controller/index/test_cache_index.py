"""`cluster-default`, tick by tick [CTL-167..180]."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from inferencecache.controller.aggregate import Source
from inferencecache.controller.index.cache_index import CacheIndexProjection, index_status
from inferencecache.core.kube.kinds import CACHE_INDICES
from inferencecache.schemas.aggregate import Aggregate, AggregateReplica, AggregateTenant
from tests.support.backend_passes import NOON, at
from tests.support.backends import Document
from tests.support.played_kube import PlayedKube

rule = pytest.mark.rule
LOG = "jetstream://IC_EVENTS/1"
SEEN = "2026-03-01T11:59:58.123456Z"


def row(replica: str, tenant: str = "ns-a", **reported: Any) -> AggregateReplica:
    """A replica that has reported statistics."""
    stats: dict[str, Any] = {"last_update": SEEN, "stats_reported": True} | reported
    return AggregateReplica(replica_id=replica, tenant=tenant, **stats)


def source(*replicas: AggregateReplica, total: int = 0, tenants: tuple[AggregateTenant, ...] = ()) -> Source:
    return Source(Aggregate(replicas, tenants, total), LOG)


def data_of(found: Source) -> Document:
    return index_status(found).data


class Told:
    """A projection over a played cluster."""

    def __init__(self) -> None:
        self.kube = PlayedKube()
        self.now: datetime = NOON
        self.projection = CacheIndexProjection(self.kube.api, self.kube.writer, lambda: self.now)

    async def tick(self, found: Source | str) -> None:
        await self.projection.prepare()
        if isinstance(found, str):
            await self.projection.stale(found)
        else:
            await self.projection.project(found)

    @property
    def status(self) -> Document:
        index = self.kube.stored(CACHE_INDICES, "cluster-default", "")
        assert index is not None
        status: Document = index.get("status", {})
        return status

    @property
    def stale(self) -> tuple[str, str, str]:
        (condition,) = self.status["conditions"]
        assert condition["type"] == "Stale"
        return condition["status"], condition["reason"], condition["lastTransitionTime"]


# ------------------------------------------------------------------------------------------- rows


@rule("CTL-W23", "CTL-174", "CTL-175", "CRD-W23", "OPS-115")
def test_of_two_tenants_rows_the_later_tenants_is_told() -> None:
    for rows in (
        (row("p", "ns-a", hit_rate=0.5), row("p", "ns-b")),
        (row("p", "ns-b"), row("p", hit_rate=0.5)),
    ):
        assert data_of(source(*rows))["replicas"] == [
            {
                "id": "p",
                "tenant": "ns-b",
                "cacheMemoryBytes": 0,
                "hitRate": "0",
                "pressure": "0",
                "lastUpdate": "2026-03-01T11:59:58Z",
            }
        ]


@rule("CTL-174", "CTL-177")
def test_replicas_are_sorted_and_those_without_statistics_left_out() -> None:
    silent = AggregateReplica(replica_id="c", tenant="a", prefix_count=9)
    rows = data_of(
        source(row("d", "a", pressure=0.66, cache_memory_bytes=5), silent, row("b", "z", hit_rate=1 / 3))
    )["replicas"]
    assert [each["id"] for each in rows] == ["b", "d"]
    assert rows[0]["hitRate"] == "0.33333334"
    assert (rows[1]["pressure"], rows[1]["cacheMemoryBytes"]) == ("0.66", 5)


@rule("CTL-W20")
def test_rows_of_pods_that_are_gone_are_told_all_the_same() -> None:
    assert [each["id"] for each in data_of(source(row("r3", prefix_count=99)))["replicas"]] == ["r3"]


@rule("CTL-176", "CRD-W22", "CTL-173", "OPS-115")
def test_tenants_without_statistics_have_no_rate_and_no_memory() -> None:
    tenants = (
        AggregateTenant(tenant_id="", index_entries=3),
        AggregateTenant(tenant_id="team-a", index_entries=5, memory_used=7),
    )
    told = data_of(source(total=8, tenants=tenants))
    assert told["tenants"] == [
        {"id": "", "indexEntries": 3, "memoryUsed": 0},
        {"id": "team-a", "indexEntries": 5, "memoryUsed": 0},
    ]
    assert told["prefixes"] == {"summary": {"total": 8, "hot": 0}}
    assert told["observedServer"] == LOG


@rule("CTL-176")
def test_a_rate_of_zero_that_was_reported_is_told() -> None:
    tenants = (
        AggregateTenant(tenant_id="a", hit_rate_reported=True),
        AggregateTenant(tenant_id="b", hit_rate=0.5),
    )
    told = data_of(source(tenants=tenants))["tenants"]
    assert [each["hitRate"] for each in told] == ["0", "0.5"]
    assert [each["indexEntries"] for each in told] == [0, 0]


# ------------------------------------------------------------------------------------------ ticks


@rule("CTL-W24", "CTL-178", "CTL-19")
async def test_it_is_written_when_what_it_says_changes() -> None:
    told = Told()
    await told.tick(source(row("r"), total=3))
    first = told.status
    assert first["prefixes"]["summary"]["total"] == 3
    assert first["lastUpdated"] == "2026-03-01T12:00:00Z"
    writes = told.kube.writes
    told.now = at(1)
    await told.tick(source(row("r", last_update="2026-03-01T12:00:59Z"), total=3))
    assert told.kube.writes == writes
    assert told.status == first
    told.now = at(2)
    await told.tick("the event log was not reached")
    assert told.status == first | {"conditions": told.status["conditions"]}
    told.now = at(3)
    await told.tick(source(row("r", last_update="2026-03-01T12:02:59Z"), total=4))
    assert told.status["lastUpdated"] == "2026-03-01T12:03:00Z"
    assert told.status["replicas"][0]["lastUpdate"] == "2026-03-01T12:02:59Z"
    assert told.kube.writes == writes + 2


@rule("CTL-180", "CTL-170")
async def test_without_a_complete_aggregate_it_keeps_what_it_said_and_says_that_it_is_old() -> None:
    told = Told()
    await told.tick(source(total=3))
    assert told.stale == ("False", "AggregateComplete", "2026-03-01T12:00:00Z")
    said = told.status["prefixes"]
    writes = told.kube.writes
    for minute in (1, 2, 3):
        told.now = at(minute)
        await told.tick("partition 1.0 was not counted for 15 s")
    assert told.stale == ("True", "AggregateIncomplete", "2026-03-01T12:01:00Z")
    assert told.status["conditions"][0]["message"] == "partition 1.0 was not counted for 15 s"
    assert told.status["prefixes"] == said
    assert told.kube.writes == writes + 1
    told.now = at(4)
    await told.tick(source(total=3))
    assert told.stale == ("False", "AggregateComplete", "2026-03-01T12:04:00Z")
    assert told.status["lastUpdated"] == "2026-03-01T12:00:00Z"


@rule("CTL-167")
async def test_it_is_there_before_there_is_anything_to_say() -> None:
    told = Told()
    await told.projection.prepare()
    index = told.kube.stored(CACHE_INDICES, "cluster-default", "")
    assert index is not None
    assert index["spec"] == {}
    await told.projection.prepare()
    assert told.kube.calls["create", "CacheIndex"] == 1


@rule("CTL-219")
async def test_one_that_was_deleted_comes_back_filled() -> None:
    told = Told()
    await told.tick(source(total=3))
    told.kube.drop(CACHE_INDICES, "cluster-default", "")
    await told.tick(source(total=3))
    assert told.status["prefixes"]["summary"]["total"] == 3


@rule("CTL-167")
async def test_somebody_who_makes_it_at_the_same_time_is_no_failure() -> None:
    told = Told()

    def meanwhile() -> None:
        told.kube.before_write = lambda: None
        made: Document = {"metadata": {"name": "cluster-default"}}
        told.kube.put(CACHE_INDICES, made)

    told.kube.before_write = meanwhile
    await told.tick(source(total=3))
    assert told.status["prefixes"]["summary"]["total"] == 3
