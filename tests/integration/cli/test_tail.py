"""The log as it grows, over a real server: what is stored is shown, also after the layout has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inferencecache.cli.installation import document, read_installation
from inferencecache.cli.layouts.store import LayoutStore
from inferencecache.cli.tailing import Wanted, follow
from inferencecache.core.log import Log
from inferencecache.core.replay import Filter, Told
from inferencecache.schemas.layout import Layout
from tests.support.dataplane import DataPlane
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

STORED = Wanted(Filter(), ["Stored"])


@pytest.fixture
async def plane(nats_server: NatsServer) -> AsyncIterator[DataPlane]:
    plane = DataPlane(nats_server)
    yield plane
    await plane.close()


@asynccontextmanager
async def tailing(log: Log) -> AsyncIterator[list[Told]]:
    """What was shown so far; whatever the following ended with is raised."""
    shown: list[Told] = []

    def show(told: Told) -> bool:
        shown.append(told)
        return True

    following = asyncio.create_task(follow(log, STORED, show))
    yield shown
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_is_reported_is_shown_as_it_comes_also_after_a_change_of_the_layout(
    plane: DataPlane,
) -> None:
    await plane.owner()
    producer = await plane.producer("r")
    await producer.begin()
    log = await plane.log()
    async with tailing(log) as shown:

        async def is_shown() -> bool:
            await producer.store(100 * (1 + len(shown)))
            return bool(shown)

        await eventually(is_shown, within_s=30)
        assert {(told.tenant, told.model, told.replica) for told in shown} == {("t", "m", "r")}
        assert all(told.fields["width"] == 8 for told in shown)

        await LayoutStore(log).put_in_force(3, ())
        producer.layout = Layout(2, 3)
        shown.clear()

        async def has_begun() -> bool:
            await producer.begin()
            return bool(shown)

        await eventually(has_begun, within_s=30)


async def test_following_ends_when_enough_was_shown(plane: DataPlane) -> None:
    await plane.owner()
    log = await plane.log()
    ticks = Wanted(Filter(), ["Tick"], control=True)
    shown: list[Told] = []

    def show(told: Told) -> bool:
        shown.append(told)
        return len(shown) < 3

    await asyncio.wait_for(follow(log, ticks, show), 30)
    assert [told.record for told in shown] == ["Tick"] * 3


async def test_following_ends_when_nobody_reads_on(plane: DataPlane) -> None:
    await plane.owner()

    def show(told: Told) -> bool:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await asyncio.wait_for(follow(await plane.log(), Wanted(Filter(), [], control=True), show), 30)


async def test_an_installation_is_told_with_owners_that_keep_up(plane: DataPlane) -> None:
    owner = await plane.owner()
    router = await plane.follower()
    log = await plane.log()

    async def told() -> bool:
        seen = document(await read_installation(log))
        return (
            [each["owner"] for each in seen["partitions"]] == [owner.id, owner.id]
            and [each["id"] for each in seen["routers"]] == [router.id]
            and all(each["lagSeconds"] < 5 and each["last"] > 0 for each in seen["partitions"])
        )

    await eventually(told, within_s=30)
