"""How long a producer's batch takes to be seen by routers, and what that costs each process.

Run it with `python -m benchmarks.dataplane_bench [BATCHES_PER_SECOND]`. A real nats-server, an indexer, two
followers in processes of their own and a process of 200 producers run for ten seconds. Every hash that
is reported is the moment of its report (the machine's monotonic clock, which its processes share), so a
follower that applies a delta knows how old each of its blocks is. It prints the median and the 99th
percentile of that, and the share of a core that each process used.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import uvloop

from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.core.service import AssetSettings, NatsSettings
from inferencecache.router import replica
from inferencecache.router.following import IndexFollowing
from inferencecache.schemas.deltas import Delta, Held, decode_delta
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import Batch, Begin, Stored, encode_batch
from inferencecache.schemas.senders import ReplicaSender
from tests.support.nats import NatsServer

SECONDS = 10.0
WARM_UP_S = 3.0
PRODUCERS = 200
BLOCKS = 8
READY_LIMIT_S = 120.0
SETTLE_S = 5.0


async def produce(url: str, rate: float) -> None:
    """Report `rate` batches a second, spread over the producers, each awaiting its acknowledgement."""
    log = await Log.connect(NatsSettings(url, insecure=True), name="bench producers")
    end = time.monotonic() + WARM_UP_S + SECONDS
    layout = Layout()

    async def one(number: int) -> None:
        sender = ReplicaSender(TenantId("t"), ModelId(f"m{number % 8}"), ReplicaId(f"r{number}"))
        subject = replica_subject(
            1, partition_of(sender.tenant, sender.model, sender.replica, layout), sender
        )
        counts = (np.arange(1, BLOCKS + 1, dtype="<i4") * 16).tobytes()
        sequence = 0
        due = time.monotonic() + number / rate
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now_ns = time.monotonic_ns()
            keys = np.arange(now_ns, now_ns + BLOCKS, dtype=">u8").tobytes()
            stored = Stored(HashScheme("s"), AdapterId(""), 1, 8, keys, counts)
            records = (stored,) if sequence else (Begin(), stored)
            sequence += 1
            batch = Batch(Incarnation(f"i{number}"), sequence, 0, records)
            await log.publisher.publish(subject, encode_batch(batch), msg_id=f"{number}.{sequence}")
            due += PRODUCERS / rate

    await asyncio.gather(*(one(number) for number in range(PRODUCERS)))
    await log.close()


async def follow(url: str) -> None:
    """Follow until standard input ends, then print the delays of what was reported after the warm-up."""
    seen: list[tuple[int, bytes]] = []

    def decode(payload: bytes) -> Delta | None:
        delta = decode_delta(payload)
        keys = [change.keys for change in delta.changes if isinstance(change, Held)]
        seen.append((time.monotonic_ns(), b"".join(keys)))
        return delta

    replica._decode = decode  # noqa: SLF001 - the place where a delta is in hand right before it is applied
    following = IndexFollowing(NatsSettings(url, insecure=True), AssetSettings(), READY_LIMIT_S)
    running = asyncio.create_task(following.run("bench"))
    while not following.ready:  # noqa: ASYNC110 - readiness is asked for, not announced
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    sent_ns = [np.frombuffer(keys, np.uint64).astype(np.int64) for _, keys in seen]
    first_ns = min(int(each.min()) for each in sent_ns if len(each))
    delays = [
        at_ns - each[each > first_ns + WARM_UP_S * 1e9]
        for (at_ns, _), each in zip(seen, sent_ns, strict=True)
    ]
    all_ms = np.concatenate(delays) / 1e6
    p50, p99 = np.percentile(all_ms, [50, 99])
    print(f"{len(all_ms)} blocks seen: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {all_ms.max():.1f} ms")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def core_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Start everything, wait, print."""
    rate = sys.argv[1] if len(sys.argv) > 1 else "2000"
    role = [sys.executable, "-m", "benchmarks.dataplane_bench"]
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder)) as server:
        flags = ["--nats-url", server.url, "--insecure-nats", "--http-bind-address=", "--log-level=error"]
        indexer = subprocess.Popen([sys.executable, "-m", "inferencecache.indexer", *flags])  # noqa: S603
        followers = [
            subprocess.Popen(  # noqa: S603
                [*role, "follow", server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for each in followers:
            assert each.stdout is not None
            each.stdout.readline()
        time.sleep(SETTLE_S)
        pids = {"nats-server": server.pid, "indexer": indexer.pid, "follower": followers[0].pid}
        before = {name: core_seconds(pid) for name, pid in pids.items()}
        began = time.monotonic()
        subprocess.run([*role, "produce", server.url, rate], check=True)  # noqa: S603
        took_s = time.monotonic() - began
        used = {name: (core_seconds(pid) - before[name]) / took_s for name, pid in pids.items()}
        print(f"{rate} batches/s of {BLOCKS} blocks from {PRODUCERS} producers")
        print("cores:", ", ".join(f"{name} {share:.2f}" for name, share in used.items()))
        for each in followers:
            print("follower:", each.communicate()[0].strip())
        indexer.terminate()
        indexer.wait()


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "produce":
        uvloop.run(produce(sys.argv[2], float(sys.argv[3])))
    elif len(sys.argv) > 2:
        uvloop.run(follow(sys.argv[2]))
    else:
        main()
