"""How fast an indexer takes a burst from JetStream into published deltas: `python -m
benchmarks.drain_bench`.

A real indexer, which owns everything and has a core of its own, is given batches of 64 new blocks faster
than it can take them. Its deltas are listened to and its lag metric is read meanwhile. The rate is all
entries of the burst over the time from its first message until the delta that says its last; each round has
a new server and a new indexer, and the figures are medians of the rounds. Entries a second of processor
time say how much of the time the indexer was busy.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import uvloop

from benchmarks.figures import hand_in
from benchmarks.million import BLOCKS, LAYOUT, TENANT, Producer, counts, models, stored
from benchmarks.programs import Program, core_seconds, kept_to, measured_core, memory, other_cores, pin
from inferencecache.core.log import Log, Message
from inferencecache.core.log.subjects import delta_subject
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.deltas import Held, decode_delta
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.senders import ReplicaSender
from tests.support.nats import NatsServer
from tests.support.waiting import eventually

ENTRIES: Final = 4_000_000
REPLICAS: Final = 8
"""Of each model."""
ROUNDS: Final = 3
UNACKNOWLEDGED: Final = 1000
"""Messages of a partition in a row of which the last alone is acknowledged; the server bounds them."""
LAG_EVERY_S: Final = 0.2
LIMIT_S: Final = 300.0
LAG_LIMIT_S: Final = 10.0
"""After the last delta, for the metric to say so."""


class Drained(NamedTuple):
    """One round: entries a second on the wall, of the burst's publishing and a second of processor time."""

    rate: float
    published: float
    cpu_rate: float
    most_lag_s: float
    caught_up_s: float
    resident: float


class Deltas:
    """Deltas as they are stored; what is in them is looked at when they are counted."""

    def __init__(self) -> None:
        self._received: list[tuple[float, bytes]] = []
        self._read = 0
        self.entries = 0
        self.last_s = 0.0

    async def listen(self, log: Log) -> None:
        for number in range(LAYOUT.partitions):
            await log.subscribe(delta_subject(LAYOUT.generation, number), self._told)

    def _told(self, message: Message) -> None:
        self._received.append((time.monotonic(), message.data))

    def count(self) -> int:
        """Entries that the deltas so far say."""
        for at_s, data in self._received[self._read :]:
            told = sum(len(each.keys) // 8 for each in decode_delta(data).changes if isinstance(each, Held))
            self.entries += told
            if told:
                self.last_s = at_s
        self._read = len(self._received)
        return self.entries


def burst(entries: int) -> list[list[tuple[str, str, bytes]]]:
    """By partition subject, message id and payload of every message."""
    rng = np.random.default_rng(1)
    producers = [
        Producer(ReplicaSender(TENANT, model, ReplicaId(f"engine-{number}")))
        for number in range(REPLICAS)
        for model in models()
    ]
    messages: list[list[tuple[str, str, bytes]]] = [[] for _ in range(LAYOUT.partitions)]
    for number in range(entries // BLOCKS):
        producer = producers[number % len(producers)]
        record = stored(rng.bytes(8 * BLOCKS), counts(BLOCKS))
        messages[producer.partition].append((producer.subject, *producer.batch(record)))
    return messages


async def publish(log: Log, messages: Sequence[tuple[str, str, bytes]]) -> None:
    """All messages of a partition, in order."""
    for start in range(0, len(messages), UNACKNOWLEDGED):
        *some, last = messages[start : start + UNACKNOWLEDGED]
        for subject, _, payload in some:
            await log.send(subject, payload)
        subject, msg_id, payload = last
        await log.publisher.publish(subject, payload, msg_id=msg_id, timeout_s=60)


async def watch_lag(indexer: Program, samples: list[tuple[float, float]]) -> None:
    """Read the metric until cancelled."""
    while True:
        lag = await asyncio.to_thread(indexer.metric, "inferencecache_indexer_lag_seconds")
        samples.append((time.monotonic(), lag))
        await asyncio.sleep(LAG_EVERY_S)


async def drain(entries: int) -> Drained:
    """One round."""
    messages = burst(entries)
    with tempfile.TemporaryDirectory() as name, kept_to(other_cores()), NatsServer(Path(name)) as server:
        log = await Log.connect(NatsSettings(server.url, insecure=True), name="bench", timeout_s=60)
        indexer = Program(
            "indexer", server.url, Path(name, "indexer.log"), "--max-entries", str(entries * 5 // 4)
        )
        try:
            await indexer.until_ready()
            pin(indexer.pid, measured_core())
            deltas, lags = Deltas(), list[tuple[float, float]]()
            await deltas.listen(log)
            watching = asyncio.create_task(watch_lag(indexer, lags))
            cpu_s, began_s = core_seconds(indexer.pid), time.monotonic()
            await asyncio.gather(*(publish(log, of_one) for of_one in messages))
            published_s = time.monotonic() - began_s
            told = sum(map(len, messages)) * BLOCKS
            await eventually(lambda: deltas.count() >= told, within_s=LIMIT_S, what="the last delta")
            cpu_s = core_seconds(indexer.pid) - cpu_s
            end_s = time.monotonic() + LAG_LIMIT_S
            while not (fell := [at for at, lag in lags if lag == 0 and at > deltas.last_s]):
                if time.monotonic() > end_s:
                    break
                await asyncio.sleep(LAG_EVERY_S)
            watching.cancel()
            return Drained(
                told / (deltas.last_s - began_s) / 1e6,
                told / published_s / 1e6,
                told / cpu_s / 1e6,
                max(lag for _, lag in lags),
                fell[0] - began_s if fell else math.inf,
                memory(indexer.pid).resident,
            )
        finally:
            indexer.end()
            await log.close()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    rounds = [uvloop.run(drain(arguments.entries)) for _ in range(arguments.rounds)]
    middle = Drained(*(statistics.median(column) for column in zip(*rounds, strict=True)))
    figures = {
        "drained, M entries/s": middle.rate,
        "published meanwhile, M entries/s": middle.published,
        "drained, M entries a second of processor time": middle.cpu_rate,
        "most lag, s": middle.most_lag_s,
        "no lag after, s": middle.caught_up_s,
        "lag was shown": float(all(each.most_lag_s > 0 for each in rounds)),
        "lag fell to nothing": float(all(each.caught_up_s < math.inf for each in rounds)),
        "indexer, resident, MiB": middle.resident,
    }
    hand_in(figures)
    for name, figure in figures.items():
        print(f"{name:>50} {figure:10.2f}")


if __name__ == "__main__":
    main()
