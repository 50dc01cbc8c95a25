"""Copies that the servers cannot make are told with the setting to change."""

from __future__ import annotations

import asyncio

import pytest

from inferencecache.core.log import ApiError, Log, NoAnswerError
from inferencecache.core.log.assets import NotClusteredError, TooFewServersError, ensure_layout
from inferencecache.core.service import AssetSettings, NatsSettings
from inferencecache.schemas.layout import Layout
from tests.support.dataplane import DataPlane
from tests.support.nats import NatsCluster, NatsServer
from tests.support.waiting import eventually


async def test_a_server_that_is_alone_refuses_copies_and_the_indexer_ends(nats_server: NatsServer) -> None:
    plane = DataPlane(nats_server, AssetSettings(partitions=1, replicas=3))
    indexer = await plane.indexer()
    with pytest.raises(NotClusteredError, match="--nats-replicas=3 needs a NATS cluster of at least"):
        await plane.ended(indexer)
    await indexer.log.close()
    await plane.close()


async def test_more_copies_than_servers_are_waited_for_and_the_setting_is_told(cluster: NatsCluster) -> None:
    log = await Log.connect(NatsSettings(cluster.url, insecure=True), name="test", timeout_s=30)

    async def are_too_few() -> bool:
        """Before the servers have chosen a leader they do not answer."""
        try:
            await ensure_layout(log, default=Layout(), replicas=5)
        except TooFewServersError:
            return True
        except (ApiError, NoAnswerError):
            return False
        return False

    await eventually(are_too_few, within_s=30)
    with pytest.raises(TooFewServersError, match="--nats-replicas=5 needs that many servers that run"):
        await ensure_layout(log, default=Layout(), replicas=5)
    await log.close()


async def test_a_connection_finds_another_server_of_its_list(cluster: NatsCluster) -> None:
    first, *_ = cluster.servers.values()
    await asyncio.to_thread(first.kill)
    log = await Log.connect(NatsSettings(cluster.url, insecure=True), name="test", timeout_s=30)
    assert log.connected
    heard = asyncio.Event()
    await log.subscribe("hello", lambda _: heard.set())
    await asyncio.to_thread(first.start)
    for server in list(cluster.servers.values())[1:]:
        await asyncio.to_thread(server.kill)

    async def is_heard() -> bool:
        await log.send("hello", b"")
        return heard.is_set()

    await eventually(is_heard, within_s=30)
    await log.close()
