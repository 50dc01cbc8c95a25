"""What backends' engines have in the index [CTL-159..166]."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from inferencecache.controller.aggregate import Source
from inferencecache.controller.backend.advisories import t2_degraded
from inferencecache.controller.index.participation import (
    Participation,
    ParticipationProjection,
    participations,
)
from inferencecache.controller.index.tier2_series import Tier2Series
from inferencecache.core.index.aggregate import Tier2
from inferencecache.core.kube.kinds import CACHE_BACKENDS, PODS, ObjectKey
from inferencecache.schemas.aggregate import Aggregate, AggregateReplica
from tests.support.backend_passes import MARK, engine, of_case, stamps
from tests.support.backends import Document, pod_local
from tests.support.played_kube import PlayedKube

rule = pytest.mark.rule
KEY = ObjectKey("ns-a", "cache")
BACKEND = of_case(pod_local())
BARE = of_case(pod_local(domain=""))
UNMARKED: Document = {}


def row(replica: str, tenant: str = "ns-a", **counts: Any) -> AggregateReplica:
    return AggregateReplica(replica_id=replica, tenant=tenant, **counts)


W20 = (
    row(
        "r1", prefix_count=3, last_event_at="2026-03-01T10:00:05.25Z", t2_hit_tokens=600, t2_query_tokens=1000
    ),
    row(
        "r2", prefix_count=4, last_event_at="2026-03-01T10:00:09.75Z", t2_hit_tokens=100, t2_query_tokens=500
    ),
    row("r3", prefix_count=99),
)


def found(
    rows: tuple[AggregateReplica, ...], *pods: Document, backends: tuple[Document, ...] = (BACKEND,)
) -> dict[ObjectKey, Participation]:
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    return participations(Aggregate(replicas=rows), backends, {"ns-a": by_name})


def other(name: str) -> Document:
    """Another backend with the same selector."""
    backend = of_case(pod_local())
    backend["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    return backend


@rule("CTL-W20", "CTL-159", "CTL-162", "CTL-23")
def test_rows_of_pods_that_are_there_are_summed() -> None:
    participation = found(W20, engine("r1"), engine("r2"))[KEY]
    assert participation.status == {
        "prefixCount": 7,
        "lastEventAt": "2026-03-01T10:00:09Z",
        "t2HitRate": "0.46666667",
    }


@rule("CTL-159")
def test_rows_without_tenant_or_replica_or_of_another_namespace_are_nobodys() -> None:
    rows = (row("r1", tenant="", prefix_count=1), row("", prefix_count=2), row("r1", "ns-b", prefix_count=4))
    assert found(rows, engine("r1"))[KEY] == Participation()


@rule("CTL-159")
def test_ranks_of_a_pod_are_the_pods() -> None:
    rows = (row("r1@dp0", prefix_count=1), row("r1@dp1", prefix_count=2), row("r1", prefix_count=4))
    assert found(rows, engine("r1"))[KEY].prefixes == 7


@rule("CTL-160")
def test_the_backend_that_wired_a_pod_owns_it_whatever_selects_it() -> None:
    rows = (row("r1", prefix_count=5),)
    backends = (other("a"), BARE)
    owned = found(rows, engine("r1", marks=stamps(uid="another")), backends=backends)
    assert owned == {ObjectKey("ns-a", "a"): Participation(), KEY: Participation(5)}


@rule("CTL-160")
def test_a_pod_whose_backend_is_gone_is_nobodys() -> None:
    assert found((row("r1", prefix_count=5),), engine("r1"), backends=(other("a"),)) == {
        ObjectKey("ns-a", "a"): Participation()
    }


@rule("CTL-160")
@pytest.mark.parametrize("marks", [UNMARKED, {f"{MARK}injected-by": "ns-b/b"}])
def test_a_pod_that_no_backend_here_wired_is_the_first_ones_that_selects_it(marks: Document) -> None:
    owned = found(
        (row("r1", prefix_count=5),), engine("r1", marks=marks), backends=(other("b"), other("a"), BARE)
    )
    assert owned[ObjectKey("ns-a", "a")].prefixes == 5
    assert owned[ObjectKey("ns-a", "b")] == owned[KEY] == Participation()


@rule("CTL-W22", "CTL-162", "CTL-148")
def test_a_tier_that_never_served_has_a_rate_of_zero_and_one_never_asked_has_none() -> None:
    never = found((row("r1", t2_query_tokens=2000),), engine("r1"))[KEY].status
    assert never == {"prefixCount": 0, "t2HitRate": "0"}
    verdict = t2_degraded(never)
    assert verdict is not None
    assert verdict[:2] == ("True", "T2ZeroHitRate")
    assert found((row("r1"),), engine("r1"))[KEY].status == {"prefixCount": 0}


# ---------------------------------------------------------------------------------------- written


class Told:
    """A projection over a played cluster, tick by tick."""

    def __init__(self, *backends: Document) -> None:
        self.kube = PlayedKube()
        self.registry = CollectorRegistry()
        self.projection = ParticipationProjection(self.kube.api, self.kube.writer, Tier2Series(self.registry))
        for backend in backends:
            self.kube.put(CACHE_BACKENDS, backend)

    async def tick(self, *rows: AggregateReplica) -> None:
        await self.projection.prepare()
        await self.projection.project(Source(Aggregate(replicas=rows), "jetstream://IC_EVENTS/1"))

    def status(self, name: str = "cache") -> Document:
        backend = self.kube.stored(CACHE_BACKENDS, name, "ns-a")
        assert backend is not None
        status: Document = backend.get("status", {})
        return status

    def series(self, name: str) -> float | None:
        labels = {"backend": "ns-a/cache"}
        return self.registry.get_sample_value(f"inferencecache_backend_t2_{name}", labels)


@rule("CTL-165", "CTL-21", "CRD-20")
async def test_it_is_written_when_it_differs_and_leaves_the_rest_alone() -> None:
    told = Told(BACKEND | {"status": {"failOpen": True}})
    told.kube.put(PODS, engine("r1"))
    told.kube.put(PODS, engine("r2"))
    for _ in range(2):
        await told.tick(*W20)
    assert told.status()["failOpen"] is True
    assert told.status()["indexParticipation"]["prefixCount"] == 7
    assert told.kube.writes == 1
    await told.tick(row("r1", prefix_count=3))
    assert told.status()["indexParticipation"] == {"prefixCount": 3}


@rule("CTL-163", "CTL-164")
async def test_a_drained_backend_is_told_and_one_that_never_had_engines_is_not() -> None:
    told = Told(BACKEND, BARE | {"metadata": BARE["metadata"] | {"name": "bare"}})
    await told.tick()
    assert told.status() == {"indexParticipation": {"prefixCount": 0}}
    assert told.status("bare") == {}
    told.kube.put(PODS, engine("r1", marks=stamps() | {f"{MARK}injected-by": "ns-a/bare"}))
    await told.tick(row("r1", prefix_count=1))
    assert told.status("bare") == {"indexParticipation": {"prefixCount": 1}}
    await told.tick()
    assert told.status("bare") == {"indexParticipation": {"prefixCount": 0}}


@rule("CTL-161", "CTL-229", "CTL-166")
async def test_a_namespace_whose_pods_cannot_be_read_keeps_what_it_had() -> None:
    told = Told(BACKEND)
    told.kube.put(PODS, engine("r1"))
    await told.tick(W20[0])
    told.kube.fail.add(("list", "Pod"))
    await told.tick(row("r1", prefix_count=50))
    await told.projection.stale("nobody has counted")
    assert told.status()["indexParticipation"]["prefixCount"] == 3
    assert told.series("hit_rate") == 0.6
    told.kube.fail.clear()
    await told.tick(row("r1", prefix_count=50))
    assert told.status()["indexParticipation"] == {"prefixCount": 50}
    assert told.series("hit_rate") is None


@rule("CTL-165")
async def test_one_backend_that_cannot_be_written_does_not_stop_the_others() -> None:
    told = Told(BACKEND, other("a"))
    told.kube.put(PODS, engine("r1"))
    failures = iter([True])
    told.kube.before_write = lambda: (
        told.kube.fail.add(("status", "CacheBackend")) if next(failures, False) else told.kube.fail.clear()
    )
    await told.tick(row("r1", prefix_count=1))
    assert told.status("a") == {}
    assert told.status() == {"indexParticipation": {"prefixCount": 1}}


# ----------------------------------------------------------------------------------------- metrics


@rule("CTL-W21", "CTL-228")
async def test_queries_are_counted_by_their_increase() -> None:
    told = Told(BACKEND)
    told.kube.put(PODS, engine("r1"))
    counted = []
    for total in (1000, 1500, 1400, 1400, 1600):
        await told.tick(row("r1", t2_query_tokens=total))
        counted.append(told.series("query_tokens_total"))
    assert counted == [0, 500, 500, 500, 700]


@rule("CTL-W20", "CTL-W22", "CTL-227", "CTL-230")
async def test_the_rate_has_its_full_precision_and_is_there_only_for_who_asks() -> None:
    told = Told(BACKEND)
    for name in ("r1", "r2"):
        told.kube.put(PODS, engine(name))
    await told.tick(*W20)
    assert told.series("hit_rate") == 700 / 1500
    await told.tick(row("r1", t2_query_tokens=2000))
    assert told.series("hit_rate") == 0.0
    await told.tick(row("r1", prefix_count=1))
    assert told.series("hit_rate") is None
    assert told.series("query_tokens_total") is None


@rule("CTL-229", "CTL-220")
def test_series_end_with_their_backend_and_begin_anew() -> None:
    registry = CollectorRegistry()
    series = Tier2Series(registry)

    def counted() -> float | None:
        return registry.get_sample_value(
            "inferencecache_backend_t2_query_tokens_total", {"backend": "ns-a/cache"}
        )

    for queries in (100, 150):
        series.update({KEY: Tier2(0, queries)})
    assert counted() == 50
    series.update({KEY: None})
    assert counted() == 50
    series.update({})
    assert counted() is None
    series.update({KEY: Tier2(0, 170)})
    assert counted() == 0


@rule("CTL-229")
async def test_a_list_of_backends_that_failed_ends_no_series() -> None:
    told = Told(BACKEND)
    told.kube.put(PODS, engine("r1"))
    await told.tick(W20[0])
    told.kube.fail.add(("list", "CacheBackend"))
    with pytest.raises(Exception, match="played to fail"):
        await told.tick(W20[0])
    assert told.series("hit_rate") == 0.6
