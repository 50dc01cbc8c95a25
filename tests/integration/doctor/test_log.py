"""The doctor over a real server with real indexers and routers: whatever is broken has its code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from inferencecache.cli.doctor.checks import judge
from inferencecache.cli.doctor.collecting.bus import collect_bus
from inferencecache.cli.doctor.facts import BusFacts, Facts, LogFacts, RouterFacts
from inferencecache.core.log import Bucket, Log, jetstream
from inferencecache.core.log.subjects import AGGREGATE, POLICY, POLICY_KEY
from inferencecache.core.service import NatsSettings
from tests.support.dataplane import DataPlane, nats
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

HEALTHY = ["SN004", "SN003", "PL002", "PB002", "JS005", "RT004"]


@pytest.fixture
async def plane(nats_server: NatsServer) -> AsyncIterator[DataPlane]:
    plane = DataPlane(nats_server)
    yield plane
    await plane.close()


async def asked(server: NatsServer, *, copies: int = 1) -> BusFacts:
    return await collect_bus(nats(server), copies=copies, wanted_policy=None)


def codes(facts: BusFacts) -> list[str]:
    return [finding.code for finding in judge(Facts(bus=facts)).findings]


async def counted(log: Log) -> None:
    """Return once owners have counted both partitions."""

    async def is_counted() -> bool:
        entries = await Bucket(log, AGGREGATE).entries(keys="1.*")
        return {"1.0", "1.1"} <= {entry.key for entry in entries}

    await eventually(is_counted, within_s=30)


@pytest.mark.rule("OPS-92")
async def test_a_healthy_log_is_found_to_be_one_and_each_damage_has_its_code(plane: DataPlane) -> None:
    server = plane.server
    owner = await plane.owner()
    followers = await asyncio.gather(plane.follower(), plane.follower())
    producer = await plane.producer("r")
    await producer.begin()
    await producer.store(1)
    log = await plane.log()
    await counted(log)
    facts = await asked(server)
    assert codes(facts) == HEALTHY
    assert isinstance(facts.routers, RouterFacts)
    assert len(facts.routers.routers) == 2
    assert facts.routers.compared > 0
    assert isinstance(facts.log, LogFacts)
    assert {each.indexer for each in facts.log.owners} == {owner.id}

    assert "JS003" in codes(await asked(server, copies=3))

    stream = (await jetstream.stream_info(log, "IC_EVENTS_1_0")).config
    await jetstream.update_stream(log, stream | {"max_age": int(3600e9)})
    assert "JS002" in codes(await asked(server))
    await jetstream.update_stream(log, stream | {"max_age": int(48 * 3600e9)})
    assert "JS006" in codes(await asked(server))
    await jetstream.update_stream(log, stream)

    await Bucket(log, POLICY).put(POLICY_KEY, b"{")
    assert "PL003" in codes(await asked(server))
    await Bucket(log, AGGREGATE).put("1.0", b"{")
    await plane.kill(owner)
    await Bucket(log, AGGREGATE).put("1.0", b"{")
    assert "SN002" in codes(await asked(server))

    # Routers would make again what is missing.
    await asyncio.gather(*map(plane.end, followers))
    await jetstream.delete_stream(log, "KV_IC_POLICY")
    await jetstream.delete_stream(log, "IC_DELTAS_1_1")
    found = codes(await asked(server))
    assert {"PL001", "PB001", "JS001", "RT001"} <= set(found)


async def test_a_partition_without_an_owner_is_told(plane: DataPlane) -> None:
    owner = await plane.owner()
    await plane.follower()
    await plane.stop(owner)
    assert codes(await asked(plane.server)).count("JS004") == 2


async def test_an_empty_server_has_no_installation(nats_server: NatsServer) -> None:
    facts = await asked(nats_server)
    assert codes(facts)[:3] == ["SN001", "PL001", "PB001"]
    assert "no indexer has ever run here" in judge(Facts(bus=facts)).findings[0].message


async def test_a_server_that_is_not_there_is_told_with_the_setting_to_change() -> None:
    facts = await collect_bus(NatsSettings("nats://127.0.0.1:1", insecure=True), copies=1, wanted_policy=None)
    report = judge(Facts(bus=facts))
    assert [each.code for each in report.findings] == ["SN001", "PL001", "PB001"]
    assert "--nats-url" in report.findings[0].message
    assert report.exit_code == 2


@pytest.mark.rule("OPS-W31")
@pytest.mark.parametrize(
    "allowed", ['"_INBOX.inferencecache.>"', '"nothing"'], ids=["nothing to be asked", "nothing to be heard"]
)
async def test_what_permissions_refuse_is_refused_and_not_missing(
    nats_servers: Callable[..., NatsServer], allowed: str
) -> None:
    permissions = f"permissions: {{ publish: ['nothing'], subscribe: [{allowed}] }}"
    server = nats_servers(extra=f"authorization {{ users: [{{ user: 'u', password: 'p', {permissions} }}] }}")
    facts = await collect_bus(NatsSettings(server.url, user="u", password="p"), copies=1, wanted_policy=None)
    assert codes(facts) == ["SN005", "PL002", "PB002"]


@pytest.mark.rule("OPS-W31")
async def test_credentials_that_are_wrong_are_refused(nats_servers: Callable[..., NatsServer]) -> None:
    server = nats_servers(extra="authorization { user: 'u', password: 'p' }")
    facts = await collect_bus(
        NatsSettings(server.url, user="u", password="other"), copies=1, wanted_policy=None
    )
    assert codes(facts) == ["SN005", "PL002", "PB002"]
