"""How long a slice of a million events takes to replay, from the file to the state.

An event is what an engine says of one block: stored, or evicted. Sidecars put the events of a flush into
one message, so the same million is measured in messages of 64 blocks, as under load, of 8, and of one, as
when each event leaves alone: there a million events are a million messages. Eight of ten events store.

Run it with `python -m benchmarks.replay_bench`; `--events` sets how many, `--json` prints one object. Times
are those of the calling thread, so a busy machine disturbs them less; that of the whole command, a process
of its own, is by the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from inferencecache.core.log.subjects import control_subject, partition_key, replica_subject
from inferencecache.core.partitions.messages import log_message
from inferencecache.core.replay import RawMessage, Rebuild, SliceWriter, read_slice
from inferencecache.schemas.ids import (
    AdapterId,
    HashScheme,
    Incarnation,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    Begin,
    Claim,
    Evicted,
    Stored,
    Tick,
    encode_batch,
)
from inferencecache.schemas.senders import ReplicaSender

REPLICAS = 16
BLOCKS_OF_A_MESSAGE = (64, 8, 1)
START_NS = 1_800_000_000_000_000_000
MESSAGE_NS = 1_000_000
SECOND_MESSAGES = 1000
TENANT, MODEL, SCHEME = TenantId("team"), ModelId("Qwen/Qwen2.5-0.5B-Instruct"), HashScheme("vllm")
ADAPTER = AdapterId("")


def messages(events: int, blocks: int) -> Iterator[RawMessage]:
    """A log of so many events, with a tick every thousand messages, one a millisecond."""
    rng = np.random.default_rng(1)
    sequences = dict.fromkeys(range(REPLICAS), 0)
    held: list[list[bytes]] = [[] for _ in range(REPLICAS)]
    counts = (np.arange(1, blocks + 1, dtype=np.int32) * 16).tobytes()
    number = 0

    def message(subject: str, *records: AnyRecord, incarnation: str = "", sequence: int = 0) -> RawMessage:
        nonlocal number
        number += 1
        position = Position(number, START_NS + number * MESSAGE_NS, START_NS)
        batch = Batch(Incarnation(incarnation), sequence, 0, records)
        return RawMessage(subject, encode_batch(batch), position)

    def of_replica(replica: int, record: AnyRecord) -> RawMessage:
        sequences[replica] += 1
        subject = replica_subject(1, 0, ReplicaSender(TENANT, MODEL, ReplicaId(f"replica-{replica}")))
        return message(subject, record, incarnation=f"life-{replica}", sequence=sequences[replica])

    owner = control_subject(1, 0, "o")
    yield message(owner, Claim(OwnerId("bench"), LogEpoch("bench")))
    for replica in range(REPLICAS):
        yield of_replica(replica, Begin(f"uid-{replica}", "", SCHEME, 16))
    for flush in range(events // blocks):
        if number % SECOND_MESSAGES == 0:
            yield message(owner, Tick(OwnerId("bench"), 1, (START_NS + number * MESSAGE_NS) // 1000))
        replica = flush % REPLICAS
        mine = held[replica]
        if flush // REPLICAS % 5 == 4:
            hashes = mine.pop(int(rng.integers(len(mine))))
            yield of_replica(replica, Evicted(ADAPTER, 8, hashes, blocks))
        else:
            hashes = rng.bytes(8 * blocks)
            mine.append(hashes)
            yield of_replica(replica, Stored(SCHEME, ADAPTER, 1, 8, hashes, counts))


def write(path: Path, events: int, blocks: int) -> None:
    """The log as a slice in a file."""
    with path.open("wb") as file:
        writer = SliceWriter(file.write, Layout(1, 1))
        writer.begin(0, Position(), ())
        for message in messages(events, blocks):
            writer.add(message)
        writer.end({})


def replay(path: Path) -> Rebuild:
    """From the file to the state."""
    part = read_slice([path.read_bytes()]).partitions[0]
    rebuild = Rebuild(partition_key(1, 0), part.at, part.base)
    for message in part.messages():
        rebuild.take(log_message(message.subject, message.payload, message.position))
    if rebuild.dropped:
        raise ValueError(f"{rebuild.dropped} messages did not count")
    return rebuild


def measure(events: int) -> dict[str, float]:
    """All figures."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.slice"
        write(path, BLOCKS_OF_A_MESSAGE[0], BLOCKS_OF_A_MESSAGE[0])
        replay(path)  # kernels are compiled, or read
        for blocks in BLOCKS_OF_A_MESSAGE:
            write(path, events, blocks)
            start = time.thread_time()
            rebuild = replay(path)
            took = time.thread_time() - start
            figures[f"messages of {blocks}, s"] = took
            figures[f"messages of {blocks}, slice MB"] = path.stat().st_size / 1e6
            figures[f"messages of {blocks}, thousand a second"] = rebuild.folded / took / 1e3
            if blocks == BLOCKS_OF_A_MESSAGE[0]:
                figures[f"messages of {blocks}, whole command, s"] = whole_command(path)
    return figures


def whole_command(path: Path) -> float:
    """What a person waits for."""
    command = [sys.executable, "-m", "inferencecache.cli", "replay", "--from", str(path), "--json"]
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return time.monotonic() - start


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments: Any = parser.parse_args()
    figures = measure(arguments.events)
    if arguments.json:
        print(json.dumps({"events": arguments.events, **figures}))
        return
    print(f"{arguments.events} events of {REPLICAS} replicas")
    for name, figure in figures.items():
        print(f"{name:>45} {figure:10.2f}")


if __name__ == "__main__":
    main()
