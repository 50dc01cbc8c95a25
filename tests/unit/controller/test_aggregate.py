"""When the controller has a complete aggregate, and what a tick does without one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from inferencecache.controller.aggregate import AggregateReader, IncompleteAggregateError, Source
from inferencecache.controller.ticking import Ticking
from inferencecache.core.kube.api import UnansweredError
from inferencecache.core.log import Entry, Gone
from inferencecache.schemas.aggregate import PartitionAggregate
from inferencecache.schemas.ids import LogEpoch, TenantId
from inferencecache.schemas.layout import CurrentLayout
from tests.support.waiting import eventually


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(clock: Clock) -> AggregateReader:
    reader = AggregateReader(clock)
    reader.layout = CurrentLayout(generation=3, partitions=2)
    return reader


def part(key: str, revision: int, keys: int = 1) -> Entry:
    counted = PartitionAggregate(LogEpoch("e"), 1, 1, keys={TenantId("t"): keys})
    return Entry(key, msgspec.json.encode(counted), revision)


def put_all(reader: AggregateReader, revision: int = 1) -> None:
    for number in range(2):
        reader.changed(part(f"3.{number}", revision + number, keys=number + 1))


@pytest.mark.rule("CTL-170")
def test_it_is_complete_when_every_partition_in_force_was_counted(reader: AggregateReader) -> None:
    reader.changed(part("3.0", 1))
    reader.changed(part("2.1", 2))
    with pytest.raises(IncompleteAggregateError, match=r"3\.1"):
        reader.read()
    reader.changed(part("3.1", 3))
    source = reader.read()
    assert (source.aggregate.total_prefixes, source.observed_server) == (2, "jetstream://IC_EVENTS/3")


@pytest.mark.rule("CTL-170")
def test_an_age_counts_from_when_a_new_revision_arrived(reader: AggregateReader, clock: Clock) -> None:
    put_all(reader)
    clock.now = 14.9
    reader.read()
    put_all(reader)  # a reopened watch shows the same revisions again
    clock.now = 15.0
    with pytest.raises(IncompleteAggregateError, match="15 s"):
        reader.read()
    put_all(reader, revision=5)
    reader.read()


@pytest.mark.rule("CTL-170")
def test_what_is_unreadable_or_gone_is_missing(reader: AggregateReader) -> None:
    put_all(reader)
    reader.changed(Entry("3.0", b"{", 9))
    reader.changed(Entry("3.budget", b"{}", 10))
    assert reader.read().aggregate.total_prefixes == 3, "the last readable count stays until it is old"
    reader.changed(Gone("3.1", 11))
    with pytest.raises(IncompleteAggregateError):
        reader.read()


def test_before_the_layout_is_known_nothing_is(clock: Clock) -> None:
    with pytest.raises(IncompleteAggregateError, match="--nats-url"):
        AggregateReader(clock).read()


class Recorded:
    """A projection that says what it was asked, and fails as told."""

    def __init__(self, name: str, told: list[Any], *, fails: bool = False, is_required: bool = False) -> None:
        self.name = name
        self.is_required = is_required
        self._told = told
        self._fails = fails

    async def prepare(self) -> None:
        self._told.append((self.name, "prepare"))

    async def project(self, source: Source) -> None:
        self._told.append((self.name, source.aggregate.total_prefixes))
        if self._fails:
            raise UnansweredError("no")

    async def stale(self, problem: str) -> None:
        self._told.append((self.name, "stale"))


@pytest.mark.rule("CTL-168")
async def test_a_tick_prepares_and_then_projects_one_aggregate_in_order(reader: AggregateReader) -> None:
    told: list[Any] = []
    put_all(reader)
    projections = [Recorded("a", told, fails=True), Recorded("b", told), Recorded("c", told)]
    assert await Ticking(reader, projections, 30.0).tick()
    assert told == [(name, "prepare") for name in "abc"] + [(name, 3) for name in "abc"]


@pytest.mark.rule("CTL-168")
async def test_a_required_projection_that_fails_ends_the_tick(reader: AggregateReader) -> None:
    told: list[Any] = []
    put_all(reader)
    projections = [Recorded("a", told, fails=True, is_required=True), Recorded("b", told)]
    assert await Ticking(reader, projections, 30.0).tick()
    assert ("b", 3) not in told


@pytest.mark.rule("CTL-166", "CTL-168", "CTL-180")
async def test_a_tick_without_an_aggregate_projects_nothing(reader: AggregateReader) -> None:
    told: list[Any] = []
    assert not await Ticking(reader, [Recorded("a", told)], 30.0).tick()
    assert told == [("a", "prepare"), ("a", "stale")]


@pytest.mark.rule("CTL-09", "CTL-169")
async def test_ticks_come_at_once_with_the_first_aggregate_and_each_period(reader: AggregateReader) -> None:
    told: list[Any] = []
    ticking = asyncio.ensure_future(Ticking(reader, [Recorded("a", told)], 3600.0).run())
    await eventually(lambda: told == [("a", "prepare"), ("a", "stale")], what="the tick at the start")
    put_all(reader)
    await eventually(lambda: ("a", 3) in told, what="the tick with the first aggregate")
    ticking.cancel()
    told.clear()
    ticking = asyncio.ensure_future(Ticking(reader, [Recorded("a", told)], 0.02).run())
    await eventually(lambda: told.count(("a", 3)) >= 3, what="periodic ticks")
    ticking.cancel()
