"""The installation at a moment, as people and programs see it."""

from __future__ import annotations

import io

from rich.console import Console

from inferencecache.cli.installation import Installation, document
from inferencecache.cli.layouts.store import State
from inferencecache.cli.owners import Owner
from inferencecache.cli.top import MOST_REPLICAS, TopView
from inferencecache.core.log.assets import LayoutEntry
from inferencecache.schemas.aggregate import PartitionAggregate, ReplicaSummary, StatsSummary
from inferencecache.schemas.ids import LogEpoch, ModelId, OwnerId, ReplicaId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.members import FoldedPartition, IndexerMember, RouterMember, ViewedPartition

TENANT = TenantId("team")


def summary(name: str, prefixes: int) -> ReplicaSummary:
    stats = StatsSummary(ModelId("m"), 1, hit_rate=0.25, pressure=0.5)
    return ReplicaSummary(TENANT, ReplicaId(name), prefixes, 4_000_000, stats)


def installation(*replicas: ReplicaSummary, last: int = 100, lag_s: float = 0.2) -> Installation:
    """Generation 2 with an older one beside it; partition 2.1 has no owner."""
    views = {
        "2.0": ViewedPartition(age_s=0.5, complete=True),
        "2.1": ViewedPartition(age_s=0.7, complete=True),
        "3.0": ViewedPartition(age_s=99.0),
    }
    state = State(
        LayoutEntry(CurrentLayout(2, 2, older=(Layout(1, 1),)), 5),
        [RouterMember("r1", 4, views, "host:9090", 2)],
        [IndexerMember(OwnerId("ix"), {"2.0": FoldedPartition(99, True, True)})],
        {
            "2.0": PartitionAggregate(LogEpoch("e"), 1, 10_000_000, replicas, {TENANT: 12}),
            "1.0": PartitionAggregate(LogEpoch("e"), 1, 1, (summary("of an older one", 9),), {TENANT: 9}),
        },
    )
    return Installation(state, (Owner("2.0", "ix", lag_s, 99, last), Owner("2.1", "", last=3)))


def drawn(view: TopView) -> str:
    console = Console(file=io.StringIO(), width=160, markup=False)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_programs_get_everything_of_the_generation_in_force() -> None:
    told = document(installation(summary("small", 3), summary("large", 9)))
    assert told["generation"] == 2
    assert told["partitions"] == [
        {"partition": "2.0", "owner": "ix", "lagSeconds": 0.2, "sequence": 99, "last": 100, "entries": 12},
        {"partition": "2.1", "owner": None, "lagSeconds": 0.0, "sequence": 0, "last": 3, "entries": None},
    ]
    assert told["indexers"] == [{"id": "ix", "owned": 1}]
    (router,) = told["routers"]
    assert (router["viewAgeSeconds"], router["complete"], router["policyRevision"]) == (0.7, True, 4)
    assert [each["replica"] for each in told["replicas"]] == ["large", "small"]
    assert told["replicas"][0] == {
        "tenant": "team",
        "replica": "large",
        "model": "m",
        "prefixes": 9,
        "quietSeconds": 6.0,
        "hitRate": 0.25,
        "pressure": 0.5,
    }


def test_people_see_partitions_routers_and_replicas() -> None:
    view = TopView("nats://host:4222")
    assert "asking nats://host:4222" in drawn(view)
    view.take(installation(summary("engine-1", 9)), 10.0)
    text = drawn(view)
    for expected in ("nobody", "host:9090", "0.7 s", "engine-1", "25.0 %", "6 s ago", "generation 2"):
        assert expected in text
    assert "of an older one" not in text


def test_rates_are_of_the_time_between_two_looks() -> None:
    view = TopView("nats")
    view.take(installation(last=100), 10.0)
    view.take(installation(last=150), 12.0)
    assert "25.0" in drawn(view)


def test_a_fleet_that_does_not_fit_is_told_by_its_largest() -> None:
    view = TopView("nats")
    view.take(installation(*(summary(f"e{number:03}", number) for number in range(MOST_REPLICAS + 5))), 1.0)
    text = drawn(view)
    assert "and 5 more" in text
    assert "e024" in text
    assert "e004" not in text
