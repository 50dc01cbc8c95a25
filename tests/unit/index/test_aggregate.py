"""The aggregate document: worked cases of section 22.7, and the naive one on any log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.aggregate import merge, rate_text, summarize, tier2_of
from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.single import single
from inferencecache.schemas.aggregate import NEVER, Aggregate, AggregateReplica, PartitionAggregate
from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.records import Cleared, Event, Stats
from tests.oracle.aggregate import naive_aggregate, rounded
from tests.oracle.logs import LogWriter
from tests.oracle.model import NaiveFold
from tests.oracle.stories import write

MINUTE_US = 60_000_000


def log() -> LogWriter:
    begun = LogWriter()
    begun.claim()
    begun.tick(0)
    return begun


def document(*logs: LogWriter) -> dict[str, Any]:
    """The document over several partitions as a reader gets it, checked against the naive one."""
    parts, naive = [], []
    for each in logs:
        fold, model = Fold(), NaiveFold()
        for message in each.messages:
            fold.fold(message)
            model.fold(message)
        put = msgspec.json.encode(summarize(fold.view))
        parts.append(msgspec.json.decode(put, type=PartitionAggregate))
        naive.append(model)
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(merge(parts)))
    assert rounded(told) == naive_aggregate(*naive)
    return told


@pytest.mark.rule("IDX-W77", "IDX-166", "IDX-177", "IDX-178", "IDX-203", "CTL-171")
def test_a_replica_is_counted_over_its_models_and_partitions() -> None:
    first, second = log(), log()
    first.report("replica-a", Stats(cache_memory_bytes=100, hit_rate=0.8), tenant="tenant-a", model="m1")
    write(first, "replica-a{p1:1} tenant=tenant-a model=m1")
    write(
        second, "replica-a{p2:1} tenant=tenant-a model=m2; replica-b{p3:1} tenant=tenant-b model=m1 hit=0.6"
    )
    told = document(first, second)
    assert told["totalPrefixes"] == 3
    assert told["hotPrefixes"] == 0
    names = ("tenant", "replicaId", "prefixCount", "cacheMemoryBytes", "statsReported")
    assert [tuple(row[name] for name in names) for row in told["replicas"]] == [
        ("tenant-a", "replica-a", 2, 100, True),
        ("tenant-b", "replica-b", 1, 0, True),
    ]
    names = ("tenantId", "indexEntries", "hitRate", "hitRateReported", "memoryUsed")
    assert [tuple(row[name] for name in names) for row in told["tenants"]] == [
        ("tenant-a", 2, 0.8, True, 0),
        ("tenant-b", 1, 0.6, True, 0),
    ]


@pytest.mark.rule("IDX-W78", "IDX-179", "IDX-182", "CTL-171", "CTL-172")
def test_what_reports_no_statistics_says_so_by_absence() -> None:
    one = log()
    write(one, "vllm-0{p:1, q:1} tenant=tenant-a")
    told = document(one)
    (replica,), (tenant,) = told["replicas"], told["tenants"]
    assert (replica["prefixCount"], replica["lastUpdate"]) == (2, NEVER)
    assert "statsReported" not in replica
    assert tenant["indexEntries"] == 2
    assert "hitRateReported" not in tenant


@pytest.mark.rule("IDX-W79", "IDX-180", "IDX-181")
def test_the_total_is_the_sum_over_tenants_and_the_reserved_one_is_in_nothing() -> None:
    one = log()
    write(one, "r1{a:1} tenant=team-a; r2{a:1} tenant=team-a; r3{c:1} tenant=team-b; r1{z:1} tenant=")
    write(one, f"__probe-x{{pp:16}} tenant={PROBE_TENANT} hit=0.5")
    told = document(one)
    assert {row["tenantId"]: row["indexEntries"] for row in told["tenants"]} == {
        "": 1,
        "team-a": 1,
        "team-b": 1,
    }
    assert told["totalPrefixes"] == 3
    assert sum(row["prefixCount"] for row in told["replicas"]) == 4
    assert len(told["replicas"]) == 4


@pytest.mark.rule("IDX-W80", "IDX-184", "IDX-185")
@pytest.mark.parametrize(
    ("sums", "rate"), [((750, 1000), 0.75), ((0, 500), 0.0), ((0, 0), None), ((900, 500), 1.0)]
)
def test_tier_2_is_rated_over_a_backends_replicas(sums: tuple[int, int], rate: float | None) -> None:
    hits, queries = sums
    replicas = [
        AggregateReplica(replica_id="a", t2_hit_tokens=hits, t2_query_tokens=queries),
        AggregateReplica(replica_id="b"),
    ]
    assert tier2_of(replicas).rate == rate


@pytest.mark.rule("IDX-185", "CTL-177")
@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.78, "0.78"), (0.0, "0"), (1.0, "1"), (single(0.1), "0.1"), (1e-6, "0.000001"), (1 / 3, "0.33333334")],
)
def test_a_rate_is_the_shortest_decimal_of_its_single(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@given(st.floats(0, 1, width=32))
def test_the_text_of_a_rate_is_the_rate(rate: float) -> None:
    assert single(float(rate_text(rate))) == rate
    assert "e" not in rate_text(rate)


@pytest.mark.rule("IDX-176", "IDX-203")
def test_of_several_models_the_newest_liveness_counts_and_of_equals_the_smallest_name() -> None:
    first, second = log(), log()
    at = first.stamp_us
    first.report("r", Stats(hit_rate=0.1, timestamp_us=at - 2 * MINUTE_US), model="m2")
    second.report("r", Stats(hit_rate=0.2, timestamp_us=at - MINUTE_US), model="m1")
    assert document(first, second)["replicas"][0]["hitRate"] == 0.2
    first.report("r", Event(3, timestamp_us=at - MINUTE_US), model="m2")
    assert document(first, second)["replicas"][0]["hitRate"] == 0.2
    assert document(second, first)["replicas"][0]["hitRate"] == 0.2
    first.report("r", Event(3, timestamp_us=at - 1), model="m2")
    assert document(first, second)["replicas"][0]["hitRate"] == 0.1


@pytest.mark.rule("IDX-179")
def test_a_replica_that_is_cleared_leaves_the_document() -> None:
    one = log()
    write(one, "r{p:1} hit=0.5")
    one.report("r", Cleared())
    assert document(one) == {"replicas": [], "tenants": [], "totalPrefixes": 0, "hotPrefixes": 0}


@pytest.mark.rule("IDX-183")
def test_field_names_are_those_of_the_contract() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(AggregateReplica)}
    assert fields == {
        *("replicaId", "tenant", "cacheMemoryBytes", "hitRate", "pressure", "lastUpdate", "prefixCount"),
        *("lastEventAt", "statsReported", "t2HitTokens", "t2QueryTokens"),
    }
    assert {field.encode_name for field in msgspec.structs.fields(Aggregate)} == {
        *("replicas", "tenants", "totalPrefixes", "hotPrefixes"),
    }


def test_a_time_that_no_calendar_has_counts_as_never() -> None:
    fold = Fold()
    one = log()
    one.report("r", Stats(timestamp_us=-(2**62)))
    message: LogMessage
    for message in one.messages:
        fold.fold(message)
    assert merge([summarize(fold.view)]).replicas[0].last_update == NEVER
