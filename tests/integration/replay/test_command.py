"""`inferencecache replay` over a live log, and over what it exported of one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from inferencecache.core.fingerprint import prefix_hashes
from inferencecache.core.log import Bucket, Objects
from inferencecache.core.log.jetstream import purge_stream, stream_info
from inferencecache.core.log.subjects import (
    POLICY,
    POLICY_KEY,
    SNAPSHOTS,
    events_stream,
    partition_key,
    partition_of,
    snapshot_request_subject,
)
from inferencecache.core.partitions import References
from inferencecache.core.policy import encode_policy_set
from inferencecache.indexer.serve import Indexer
from inferencecache.schemas.ids import AdapterId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from inferencecache.schemas.positions import SnapshotRef
from inferencecache.schemas.records import Cleared, Evicted
from tests.integration.replay.conftest import Command
from tests.support.dataplane import MODEL, TENANT, DataPlane, Producer, fold_of
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

BLOCK = 16
TOKENS = list(range(1, 81))
CHAIN = prefix_hashes(TOKENS, BLOCK)
PROMPT = ("--tokens", "1..80")
WHO = ("--tenant", "t", "--model", "m", "--scheme", "s")
PARTITION = partition_of(TENANT, MODEL, "r1", Layout(1, 2))
OFFLINE = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        raise RuntimeError(f"the network is used: {event}")

sys.addaudithook(refuse)
from inferencecache.cli.app import main

main()
"""


async def offline(*arguments: str) -> str:
    """What the command says in a process that may not use the network."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OFFLINE, "replay", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def store_prompt(producer: Producer, blocks: int = len(CHAIN)) -> None:
    """The producer's engine holds the beginning of the prompt."""
    producer.known |= {hash_: BLOCK * (number + 1) for number, hash_ in enumerate(CHAIN[:blocks])}
    await producer.report(producer._stored(CHAIN[:blocks]))


async def folded_up_to(plane: DataPlane, indexer: Indexer) -> None:
    """Return once the owner has folded what is in the partition's log now."""
    log = await plane.log()
    last = (await stream_info(log, events_stream(1, PARTITION))).state.last_seq
    await eventually(lambda: fold_of(indexer.partitions[PARTITION]).view.log.sequence >= last)


async def snapshot(plane: DataPlane) -> SnapshotRef:
    """A snapshot of the partition that is newer than the one before."""
    log = await plane.log()
    references = References(log, partition_key(1, PARTITION))
    before, _ = await references.read()
    await log.send(snapshot_request_subject(1, PARTITION), b"")
    found: list[SnapshotRef] = []

    async def is_taken() -> bool:
        refs, _ = await references.read()
        if refs is None or refs.current is None or (before is not None and refs.current == before.current):
            return False
        found.append(refs.current)
        return True

    await eventually(is_taken, within_s=30)
    return found[-1]


def moment() -> str:
    return datetime.now(UTC).isoformat()


async def test_a_slice_explains_a_lookup_without_network_as_the_live_log_does(
    plane: DataPlane, replay: Command, tmp_path: Path
) -> None:
    indexer = await plane.owner()
    first, second = await plane.producer("r1"), await plane.producer("r2")
    for producer, blocks in ((first, 5), (second, 3)):
        await producer.begin()
        await store_prompt(producer, blocks)
    log = await plane.log()
    policy = ResolvedPolicy("t", eviction_ttl_ms=600_000, minimum_matched_tokens=32, load_weight=0.25)
    revision = await Bucket(log, POLICY).put(POLICY_KEY, encode_policy_set(PolicySet(policies=(policy,))))
    await eventually(lambda: fold_of(indexer.partitions[PARTITION]).policy.revision == revision, within_s=30)
    until = moment()
    question = ("--explain", *PROMPT, *WHO, "--until", until, "--json")
    live = (await replay(*question)).json
    assert live["reason"] == "PREFIX_MATCH"
    assert [each["matchedTokens"] for each in live["replicas"]] == [80, 48]
    assert (live["ttlMs"], live["minimumMatchedTokens"], live["loadWeight"]) == (600_000, 32, 0.25)
    await first.report(Cleared())
    await folded_up_to(plane, indexer)
    file = str(tmp_path / "whole.slice")
    exported = (await replay("--export", file, "--json")).json
    assert [each["partition"] for each in exported["partitions"]] == [0, 1]
    assert json.loads(await offline("--from", file, *question)) == live
    last = exported["partitions"][PARTITION]["until"]
    end = ("--explain", *PROMPT, *WHO, "--until", str(last), "--json")
    after = json.loads(await offline("--from", file, *end))
    assert [each["replica"] for each in after["replicas"] if each["rank"]] == ["r2"]
    assert after == (await replay(*end)).json


async def test_a_history_tells_when_a_prefix_came_and_why_it_left(plane: DataPlane, replay: Command) -> None:
    indexer = await plane.owner()
    producer, other = await plane.producer("r1"), await plane.producer("r2")
    await producer.begin()
    await other.begin()
    await store_prompt(producer)
    await store_prompt(other, 2)
    await producer.report(Evicted(AdapterId(""), 8, CHAIN[3].to_bytes(8, "big"), 1))
    await folded_up_to(plane, indexer)
    told = (await replay("--why", "1..80", "--replica", "r1", *WHO, "--json")).json
    spans = [(each["first"], each["last"], each["standing"]["held"]) for each in told["blocks"]]
    assert spans == [(1, 3, True), (4, 4, False), (5, 5, True)]
    stored, evicted = told["blocks"][1]["moments"]
    assert (stored["what"], evicted["what"]) == ("stored", "evicted")
    assert stored["sequence"] < evicted["sequence"] <= told["until"]
    (elsewhere,) = told["elsewhere"]
    assert (elsewhere["replica"], elsewhere["blocks"]) == ("r2", 2)
    shown = await replay("--why", CHAIN[3].to_bytes(8, "big").hex(), "--replica", "r1", *WHO)
    assert "evicted by the engine" in shown.out
    nobody = await replay("--why", "1..80", "--replica", "r9", *WHO)
    assert "never seen" in nobody.out
    assert "r9 is unknown there" in nobody.out


async def test_events_differences_and_states_are_those_of_the_span_asked_for(
    plane: DataPlane, replay: Command
) -> None:
    indexer = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    await folded_up_to(plane, indexer)
    before = fold_of(indexer.partitions[PARTITION]).view.log.sequence
    await store_prompt(producer)
    await folded_up_to(plane, indexer)
    after = fold_of(indexer.partitions[PARTITION]).view.log.sequence
    one = ("--partition", str(PARTITION))
    only = ("--tenant", "t", "--model", "m", "--replica", "r1")
    span = ("--since", str(before), "--until", str(after))
    (event,) = (await replay("--events", *span, *only, "--json")).lines
    assert (event["record"], len(event["fields"]["hashes"]), event["dropped"]) == ("Stored", 5, "")
    all_of = (await replay("--events", *span, *one, "--json")).lines
    assert {each["sequence"] for each in all_of} == set(range(before + 1, after + 1))
    (difference,) = (await replay("--diff", str(before), str(after), *one, "--json")).json["partitions"]
    (holder,) = difference["holders"]
    assert sorted(holder["came"]) == sorted(f"{hash_:016x}" for hash_ in CHAIN)
    assert (difference["before"]["entries"], difference["after"]["entries"]) == (0, 5)
    (state,) = (await replay("--until", str(after), *one, "--json")).json["partitions"]
    assert state == difference["after"]
    (empty,) = (await replay("--until", str(before), *one, "--json")).json["partitions"]
    assert (empty["entries"], empty["sequence"]) == (0, before)
    for table in (("--diff", str(before), str(after)), ("--events", *span), ()):
        assert "r1" in (await replay(*table, *one)).out


async def test_what_is_before_the_oldest_base_is_refused_and_says_where_that_is(
    plane: DataPlane, replay: Command
) -> None:
    indexer = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    await store_prompt(producer)
    await folded_up_to(plane, indexer)
    base = await snapshot(plane)
    log = await plane.log()
    await purge_stream(log, events_stream(1, PARTITION), below=base.log.sequence)
    one = ("--partition", str(PARTITION))
    refused = await replay("--until", "2", *one)
    assert refused.code == 1
    assert f"at message {base.log.sequence}" in refused.err
    assert "choose a later point" in refused.err
    (state,) = (await replay("--until", str(base.log.sequence), *one, "--json")).json["partitions"]
    assert (state["digest"], state["entries"]) == (base.digest, 5)
    told = (await replay("--why", "1..80", "--replica", "r1", *WHO, "--json")).json
    assert [each["what"] for each in told["blocks"][0]["moments"]] == ["in_base"]


async def test_a_base_that_cannot_be_read_is_passed_over(plane: DataPlane, replay: Command) -> None:
    indexer = await plane.owner()
    producer = await plane.producer("r1")
    await producer.begin()
    await store_prompt(producer)
    await folded_up_to(plane, indexer)
    base = await snapshot(plane)
    log, stream, behind = await plane.log(), events_stream(1, PARTITION), base.log.sequence + 1

    async def has_grown() -> bool:
        return (await stream_info(log, stream)).state.last_seq >= behind

    await eventually(has_grown)
    broken = f"1/{PARTITION}/{behind}-nobody-ffffffff"
    await Objects(log, SNAPSHOTS).put(broken, [b"no snapshot"])
    ran = await replay("--partition", str(PARTITION), "--until", str(behind), "--json")
    (state,) = ran.json["partitions"]
    assert (state["sequence"], state["entries"]) == (behind, 5)
    assert f"{broken} is passed over" in ran.err


async def test_a_replay_leaves_nothing_behind_on_the_server(plane: DataPlane, replay: Command) -> None:
    await plane.owner()
    log = await plane.log()
    stream = events_stream(1, PARTITION)
    before = (await stream_info(log, stream)).state.consumer_count
    assert (await replay("--events")).code == 0

    async def is_left_alone() -> bool:
        return (await stream_info(log, stream)).state.consumer_count == before

    await eventually(is_left_alone, within_s=30)


async def test_events_end_quietly_when_nobody_reads_on(plane: DataPlane, nats_server: NatsServer) -> None:
    await plane.owner()
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferencecache.cli", "replay", "--events", "--nats-url", nats_server.url),
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err.decode()) == (1, "")


async def test_without_an_installation_it_says_what_is_missing(
    plane: DataPlane, replay: Command, tmp_path: Path
) -> None:
    ran = await replay()
    assert (ran.code, "no layout" in ran.err) == (1, True)
    await plane.owner()
    ran = await replay("--generation", "7")
    assert (ran.code, "--generation is one of 1" in ran.err) == (1, True)
    ran = await replay("--partition", "9")
    assert (ran.code, "only 0, 1" in ran.err) == (1, True)
    ran = await replay("--export", str(tmp_path / "no-folder" / "x.slice"))
    assert (ran.code, "cannot write" in ran.err) == (1, True)
    assert not list(tmp_path.rglob("*.part"))
