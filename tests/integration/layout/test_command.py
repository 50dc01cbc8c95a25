"""`inferencecache layout` as a person or a script runs it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec
import pytest
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.core.log import Bucket, Log, ensure_assets, ensure_layout, read_layout
from inferencecache.core.log.subjects import AGGREGATE, LAYOUT, LAYOUT_KEY, MEMBERS
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.aggregate import PartitionAggregate
from inferencecache.schemas.ids import LogEpoch, ModelId, OwnerId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Lanes, Layout
from inferencecache.schemas.members import FoldedPartition, IndexerMember, RouterMember
from tests.support.nats import NatsServer

FIRST = Layout(1, 2)


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Awaitable[Ran]]


@pytest.fixture
def command(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs it in this process, which keeps the logs it has."""
    monkeypatch.setattr("inferencecache.cli.connected.configure_logging", lambda *_: None)

    async def run(*arguments: str) -> Ran:
        result = await asyncio.to_thread(
            CliRunner().invoke, app, ["layout", *arguments, "--nats-url", nats_server.url]
        )
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
async def log(nats_server: NatsServer) -> AsyncIterator[Log]:
    """A connection to an installation whose layout has one generation."""
    opened = await Log.connect(NatsSettings(nats_server.url, insecure=True), name="test", timeout_s=10)
    await ensure_assets(opened, await ensure_layout(opened, default=FIRST))
    yield opened
    await opened.close()


async def say(log: Log, *members: RouterMember | IndexerMember) -> None:
    """Be these members; a row lasts for ten seconds."""
    for member in members:
        role = "router" if isinstance(member, RouterMember) else "indexer"
        await Bucket(log, MEMBERS).put(f"{role}.{member.id}", msgspec.json.encode(member))


async def test_a_layout_is_set_shown_and_pruned(command: Command, log: Log) -> None:
    ran = await command("set", "--partitions", "4", "--lanes", "team-a/org/model=3")
    assert (ran.code, ran.err) == (0, "")
    assert "set: generation 2, 4 partitions, lanes team-a/org/model=3; older: 1" in ran.out
    lanes = Lanes(TenantId("team-a"), ModelId("org/model"), 3)
    assert await read_layout(log) == CurrentLayout(2, 4, (lanes,), older=(FIRST,))

    owner = IndexerMember(
        OwnerId("ix"), {"2.1": FoldedPartition(12, True, True), "2.2": FoldedPartition(7, True)}
    )
    await say(log, owner, RouterMember("r1", generation=2), RouterMember("r2", generation=1))
    count = PartitionAggregate(LogEpoch("e"), 12, 0, keys={TenantId("a"): 5, TenantId("b"): 6})
    await Bucket(log, AGGREGATE).put("2.1", msgspec.json.encode(count))
    ran = await command("show")
    assert ran.code == 0, ran.err
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "GENERATION PARTITION OWNER CAUGHT UP LOG ENTRIES" in lines
    assert "2 1 ix 1 of 1 12 11" in lines
    assert "2 2 nobody 1 of 1" in lines
    assert "1 0 nobody 0 of 1" in lines
    assert "routers: 1 of 2 answer by generation 2" in lines

    ran = await command("prune")
    assert ran.code == 1
    assert "r2 (generation 1)" in ran.err
    await say(log, RouterMember("r1", generation=2), RouterMember("r2", generation=2))
    assert "inferencecache layout prune" in (await command("show")).out
    ran = await command("prune")
    assert (ran.code, ran.out) == (0, "removed generation 1: 4 streams and 0 snapshots\n")
    assert await read_layout(log) == CurrentLayout(2, 4, (lanes,))
    assert (await command("prune")).out == "there is no older generation\n"


async def test_scripts_read_json(command: Command, log: Log) -> None:
    ran = await command("set", "--partitions", "3", "--output", "json")
    assert json.loads(ran.out) == {
        "generation": 2,
        "partitions": 3,
        "lanes": [],
        "written": True,
        "routersBehind": None,
    }
    await say(log, RouterMember("r1", generation=2))
    shown = json.loads((await command("show", "-o", "json")).out)
    assert [(each["generation"], each["inForce"]) for each in shown["generations"]] == [(1, False), (2, True)]
    assert shown["generations"][1]["state"][2] == {
        "partition": 2,
        "owner": None,
        "caughtUp": [],
        "sequence": None,
        "entries": None,
    }
    assert shown["routers"] == [{"id": "r1", "generation": 2}]
    ran = await command("set", "--partitions", "3", "-o", "json")
    assert json.loads(ran.out)["written"] is False
    await say(log, RouterMember("r1", generation=2))
    pruned = json.loads((await command("prune", "-o", "json")).out)
    assert pruned == {"generations": [1], "streams": 4, "objects": 0}


async def test_nothing_is_written_by_a_dry_run_or_when_nothing_changes(command: Command, log: Log) -> None:
    ran = await command("set", "--partitions", "4", "--dry-run", "--wait", "5s")
    assert (ran.code, ran.out) == (0, "would be set: generation 2, 4 partitions, one lane each; older: 1\n")
    ran = await command("set", "--partitions", "2", "--lanes", "t/m=1")
    assert (ran.code, ran.out) == (0, "unchanged: generation 1 is already so\n")
    assert await read_layout(log) == CurrentLayout(1, 2)


async def test_waiting_ends_with_1_and_names_the_routers_that_are_behind(command: Command, log: Log) -> None:
    await say(log, RouterMember("r1", generation=1), RouterMember("r2", generation=2))
    ran = await command("set", "--partitions", "3", "--wait", "300ms")
    assert ran.code == 1
    assert "routers: 1 of 2 answer by generation 2" in ran.out
    assert ran.err == "router r1 answers by generation 1, not yet 2\n"
    again = await command("set", "--partitions", "3", "--wait", "300ms")
    assert (again.code, again.err) == (1, ran.err), "a wait that was interrupted can be taken up again"
    await say(log, RouterMember("r1", generation=3), RouterMember("r2", generation=3))
    ran = await command("set", "--partitions", "4", "--wait", "300ms", "-o", "json")
    assert (ran.code, json.loads(ran.out)["routersBehind"]) == (0, [])


async def test_waiting_for_routers_ends_with_1_where_none_runs(command: Command, log: Log) -> None:
    ran = await command("set", "--partitions", "3", "--wait", "300ms")
    assert ran.code == 1
    assert ran.err == "no router is running that could answer by generation 2\n"


async def test_what_cannot_work_is_refused_with_a_way_out(command: Command, log: Log) -> None:
    ran = await command("set", "--lanes", "t/m=3")
    assert ran.code == 1
    assert "raise --partitions" in ran.err
    for partitions in range(3, 7):
        assert (await command("set", "--partitions", str(partitions))).code == 0
    ran = await command("set", "--partitions", "9")
    assert (ran.code, "inferencecache layout prune" in ran.err) == (1, True)
    ran = await command("prune")
    assert (ran.code, "no router is running" in ran.err) == (1, True)
    ran = await command("prune", "--force")
    assert (ran.code, ran.out) == (0, "removed generation 1, 2, 3, 4: 4 streams and 0 snapshots\n")


@pytest.mark.parametrize("subcommand", ["show", "prune"])
async def test_without_an_installation_it_says_what_to_start(command: Command, subcommand: str) -> None:
    ran = await command(subcommand)
    assert (ran.code, "start an indexer" in ran.err) == (1, True)


async def test_a_layout_of_a_newer_schema_is_not_touched(command: Command, log: Log) -> None:
    value = msgspec.json.encode(CurrentLayout(2, 4, schema=99))
    await Bucket(log, LAYOUT).put(LAYOUT_KEY, value)
    for arguments in (("show",), ("set", "--partitions", "3"), ("prune", "--force")):
        ran = await command(*arguments)
        assert (ran.code, "schema 99" in ran.err, "upgrade" in ran.err) == (1, True, True)
    entry = await Bucket(log, LAYOUT).get(LAYOUT_KEY)
    assert entry is not None
    assert entry.value == value
