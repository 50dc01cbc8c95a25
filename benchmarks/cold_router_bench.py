"""How long a router takes from the start of its process until it is ready, with a large index to load.

Run it with `python -m benchmarks.cold_router_bench [ENTRIES]`. A real nats-server holds an index of so many
entries (a million) in two partitions: snapshots, and behind them the deltas of some time, as an indexer
writes them. Then a router is started again and again, and asked until it says that it is ready.

Printed are the times of the starts; the processor time until then, which other work on the machine does not
lengthen; and how long a partition goes without a delta when its owner is killed with a standby beside it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks.figures import hand_in
from benchmarks.programs import Program, core_seconds
from inferencecache.core.log import Log, Message
from inferencecache.core.log.subjects import (
    delta_subject,
    partition_key,
    partition_of,
    replica_subject,
    snapshot_request_subject,
)
from inferencecache.core.partitions import References
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.deltas import decode_delta
from inferencecache.schemas.ids import (
    AdapterId,
    HashScheme,
    Incarnation,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import Batch, Begin, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.support.nats import NatsServer
from tests.support.waiting import a_moment, eventually

ENTRIES: Final = 1_000_000
DELTAS: Final = 3_000
"""Behind the snapshot of each partition."""
STARTS: Final = 5
KILLS: Final = 3
HEARTBEATS: Final = 5
REPLICAS: Final = 64
BLOCKS: Final = 1_000
LAYOUT: Final = Layout()
PARTITIONS: Final = range(LAYOUT.partitions)
LIMIT_S: Final = 120.0


class Start(NamedTuple):
    """Until it was ready: time on the wall, and processor time of all its threads; what it then held."""

    wall_s: float
    cpu_s: float
    entries: int


class Producer:
    """Reports new blocks as one of many replicas; their models are spread over both partitions."""

    def __init__(self, log: Log, number: int) -> None:
        sender = ReplicaSender(TenantId("t"), ModelId(f"m{number % 8}"), ReplicaId(f"r{number}"))
        self.partition = partition_of(sender.tenant, sender.model, sender.replica, LAYOUT)
        self._subject = replica_subject(LAYOUT.generation, self.partition, sender)
        self._log = log
        self._number = number
        self._sequence = 0
        self._key = number << 40

    async def store(self, blocks: int) -> None:
        """Report a chain of so many blocks."""
        keys = np.arange(self._key, self._key + blocks, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._key += blocks
        counts = (np.arange(1, blocks + 1, dtype="<i4") * 16).tobytes()
        stored = Stored(HashScheme("s"), AdapterId(""), 1, 8, keys.astype(">u8").tobytes(), counts)
        self._sequence += 1
        records = (stored,) if self._sequence > 1 else (Begin(), stored)
        batch = Batch(Incarnation(f"i{self._number}"), self._sequence, 0, records)
        message_id = f"{self._number}.{self._sequence}"
        await self._log.publisher.publish(self._subject, encode_batch(batch), msg_id=message_id)


class Deltas:
    """Deltas as they are stored: how many, and whose the last one was, by partition."""

    def __init__(self) -> None:
        self.count: Counter[int] = Counter()
        self.owner: dict[int, OwnerId] = {}

    async def listen(self, log: Log) -> None:
        """Begin to count."""
        for number in PARTITIONS:
            await log.subscribe(
                delta_subject(LAYOUT.generation, number),
                lambda message, number=number: self._told(number, message),  # type: ignore[misc]
            )

    def _told(self, number: int, message: Message) -> None:
        self.count[number] += 1
        self.owner[number] = decode_delta(message.data).owner


async def fill(log: Log, entries: int, deltas: int) -> None:
    """Make snapshots of an index of so many entries, and so many deltas behind each."""
    producers = [Producer(log, number) for number in range(REPLICAS)]
    for start in range(0, entries // BLOCKS, REPLICAS):
        await asyncio.gather(*(each.store(BLOCKS) for each in producers[: entries // BLOCKS - start]))
    for number in PARTITIONS:
        await snapshot(log, number)
    told = Deltas()
    await told.listen(log)
    reporting = [next(each for each in producers if each.partition == number) for number in PARTITIONS]
    for _ in range(deltas):
        before = told.count.copy()
        await asyncio.gather(*(producer.store(1) for producer in reporting))
        while any(told.count[number] == before[number] for number in PARTITIONS):
            await a_moment()


async def snapshot(log: Log, partition: int) -> None:
    """Have the owner make one now."""
    references = References(log, partition_key(LAYOUT.generation, partition))
    _, before = await references.read()
    await log.send(snapshot_request_subject(LAYOUT.generation, partition), b"")

    async def is_there() -> bool:
        return (await references.read())[1] != before

    await eventually(is_there, within_s=LIMIT_S, what="a snapshot")


def start_indexer(url: str, log: Path) -> Program:
    """One without a cap: every entry is to be there."""
    return Program("indexer", url, log, "--max-entries", "0")


async def start_router(url: str, folder: Path) -> Start:
    """Start one, await its readiness, end it."""
    began = time.monotonic()
    router = Program("router", url, folder / "router.log", "--grpc-bind-address", "127.0.0.1:0")
    try:
        while not router.ready:
            await a_moment()
        wall_s, cpu_s = time.monotonic() - began, core_seconds(router.process.pid)
        return Start(wall_s, cpu_s, router.entries)
    finally:
        router.end()


async def fail_over(log: Log, url: str, folder: Path, indexers: list[Program]) -> float:
    """Kill who owns partition 0; seconds until another's first delta of it. A third is started then."""
    told = Deltas()
    await told.listen(log)
    owner = await settled_owner(told)
    killed = next(each for each in indexers if id_of(each) == owner)
    began = time.monotonic()
    killed.process.kill()
    await eventually(lambda: told.owner[0] != owner, within_s=LIMIT_S)
    took_s = time.monotonic() - began
    killed.process.wait()
    indexers.remove(killed)
    indexers.append(start_indexer(url, folder / f"{killed.log.name}x"))
    await eventually(lambda: indexers[-1].ready, within_s=LIMIT_S)
    return took_s


async def settled_owner(told: Deltas) -> OwnerId:
    """Whose partition 0 is, once some heartbeats in a row have been the same indexer's."""
    while True:
        told.owner.clear()
        told.count.clear()
        await eventually(lambda: told.count[0] > 0, within_s=LIMIT_S)
        owner = told.owner[0]
        await eventually(lambda: told.count[0] > HEARTBEATS, within_s=LIMIT_S)
        if told.owner[0] == owner:
            return owner


def id_of(indexer: Program) -> OwnerId:
    """What an indexer calls itself."""
    lines = (json.loads(line) for line in indexer.log.read_text().splitlines())
    return next(OwnerId(line["id"]) for line in lines if line["event"] == "indexer_started")


async def measure(entries: int, deltas: int, starts: int, kills: int) -> tuple[list[Start], list[float]]:
    """Starts of a router, and fail-overs of a partition."""
    with tempfile.TemporaryDirectory() as name, NatsServer(Path(name)) as server:
        folder = Path(name)
        log = await Log.connect(NatsSettings(server.url, insecure=True), name="bench", timeout_s=LIMIT_S)
        indexers = [start_indexer(server.url, folder / "indexer.log")]
        try:
            await eventually(lambda: indexers[0].ready, within_s=LIMIT_S)
            await fill(log, entries, deltas)
            routers = [await start_router(server.url, folder) for _ in range(starts)]
            if kills:
                indexers.append(start_indexer(server.url, folder / "standby.log"))
                await eventually(lambda: indexers[1].ready, within_s=LIMIT_S)
            silences = [await fail_over(log, server.url, folder, indexers) for _ in range(kills)]
        finally:
            for program in indexers:
                program.end()
            await log.close()
    return routers, silences


def main() -> None:
    """Print the figures."""
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    routers, silences = asyncio.run(measure(entries, DELTAS, STARTS, KILLS))
    walls, cpus = [each.wall_s for each in routers], [each.cpu_s for each in routers]
    hand_in(
        {
            "ready, s": statistics.median(walls),
            "ready, processor time, s": statistics.median(cpus),
            "partition without deltas after a kill, s": statistics.median(silences),
        }
    )
    print(f"{entries} entries in {LAYOUT.partitions} partitions, {DELTAS} deltas behind each snapshot")
    print(
        f"router ready after: median {statistics.median(walls):.2f} s, all",
        *(f"{wall:.2f}" for wall in walls),
    )
    print(f"processor time:     median {statistics.median(cpus):.2f} s, all", *(f"{cpu:.2f}" for cpu in cpus))
    print("partition without deltas after its owner is killed, s:", *(f"{each:.2f}" for each in silences))


if __name__ == "__main__":
    main()
