"""How long after an engine's event every router answers by it: `python -m benchmarks.dataplane_bench`.

A real nats-server, an indexer and two routers run, 200 producers report two thousand batches a second, and
one engine publishes stores on its socket, which a real sidecar reads. After each store both routers are
asked, over gRPC, until their answers name the engine; the time from the engine's publishing until an answer
is what is counted, for both routers. An event is missed if it takes longer than a limit. Printed, too, is
the share of a core that each process used.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import uvloop

from benchmarks.calling import Caller, calling
from benchmarks.figures import hand_in
from benchmarks.programs import Program, core_seconds, end_all
from benchmarks.served_bench import LOOKUP, Router
from inferencecache.cli.stack.ports import Ports
from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partition_of, replica_subject
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.ids import AdapterId, HashScheme, Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.records import Batch, Begin, encode_batch
from inferencecache.schemas.records import Stored as StoredRecord
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.simengine.cache import Stored
from inferencecache.simengine.events import BlocksStored
from inferencecache.simengine.publisher import EventPublisher
from inferencecache.simengine.vllm_form import VllmForm
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest, LookupRouteResponse
from tests.support.nats import NatsServer

RATE: Final = 2_000.0
EVENTS: Final = 500
EVERY_S: Final = 0.04
"""Between events of the engine: its sidecar sends each at once."""
WARM_UP_S: Final = 3.0
PRODUCERS: Final = 200
BLOCKS: Final = 8
TOKENS: Final = 16
ROUTERS: Final = 2
ASK_AGAIN_S: Final = 0.001
SEEN_LIMIT_S: Final = 5.0
TENANT, MODEL, SCHEME = TenantId("t"), ModelId("m0"), HashScheme("vllm")
ENGINE: Final = "engine"


async def produce(url: str, rate: float) -> None:
    """Report `rate` batches a second, spread over the producers, each awaiting its acknowledgement."""
    log = await Log.connect(NatsSettings(url, insecure=True), name="bench producers")
    layout, rng = Layout(), np.random.default_rng()

    async def one(number: int) -> None:
        sender = ReplicaSender(TENANT, ModelId(f"m{number % 8}"), ReplicaId(f"r{number}"))
        subject = replica_subject(
            1, partition_of(sender.tenant, sender.model, sender.replica, layout), sender
        )
        counts = (np.arange(1, BLOCKS + 1, dtype="<i4") * TOKENS).tobytes()
        sequence = 0
        due = time.monotonic() + number / rate
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            stored = StoredRecord(SCHEME, AdapterId(""), 1, 8, rng.bytes(8 * BLOCKS), counts)
            records = (stored,) if sequence else (Begin(scheme=SCHEME), stored)
            sequence += 1
            batch = Batch(Incarnation(f"i{number}"), sequence, 0, records)
            await log.publisher.publish(
                subject, encode_batch(batch), msg_id=f"{number}.{sequence}", timeout_s=30
            )
            due += PRODUCERS / rate

    await asyncio.gather(*(one(number) for number in range(PRODUCERS)))


async def follow_event(engine: EventPublisher, number: int, callers: Sequence[Caller]) -> list[float | None]:
    """Publish one store; milliseconds until each router answers by it, None if it does not in time."""
    tokens = tuple(range(number * BLOCKS * TOKENS, (number + 1) * BLOCKS * TOKENS))
    hashes = tuple(f"{number}.{block}".encode().rjust(32, b"-") for block in range(BLOCKS))
    request = LookupRouteRequest(
        tenant_id=TENANT,
        model_id=MODEL,
        hash_scheme=SCHEME,
        prefix_hash=prefix_digests(tokens, TOKENS)[-1],
        prefix_token_count=len(tokens),
    ).SerializeToString()

    def names_engine(message: bytes) -> bool:
        scores = LookupRouteResponse.FromString(message).replica_scores
        return any(score.replica_id == ENGINE and score.matched_tokens == len(tokens) for score in scores)

    began_s = time.monotonic()
    engine.publish([BlocksStored(Stored(hashes, None, tokens))])
    seen = await asyncio.gather(
        *(each.until(request, names_engine, SEEN_LIMIT_S, ASK_AGAIN_S) for each in callers)
    )
    return [None if at_s is None else 1e3 * (at_s - began_s) for at_s in seen]


def start_sidecar(url: str, folder: Path, events: str, replay: str) -> Program:
    """The engine's."""
    return Program(
        "kvevent_subscriber",
        url,
        folder / "sidecar.log",
        *("--engine-endpoint", events, "--replay-endpoint", replay, "--block-size", str(TOKENS)),
        *("--replica-id", ENGINE, "--model-id", MODEL, "--tenant-id", TENANT, "--hash-scheme", SCHEME),
    )


def start_producers(url: str, rate: float) -> subprocess.Popen[bytes]:
    """A process of all of them."""
    command = [sys.executable, "-m", "benchmarks.dataplane_bench", "--produce", url, "--rate", str(rate)]
    return subprocess.Popen(command)  # noqa: S603


async def run(rate: float, events: int) -> dict[str, float]:
    """All figures."""
    ports = Ports(well_known=False)
    with tempfile.TemporaryDirectory() as name, NatsServer(Path(name)) as server:
        folder = Path(name)
        sockets = [f"tcp://127.0.0.1:{ports.take(0)}" for _ in range(2)]
        engine = EventPublisher(*sockets, form=VllmForm(TOKENS))
        engine.start()
        programs = [Program("indexer", server.url, folder / "indexer.log")]
        producers: subprocess.Popen[bytes] | None = None
        try:
            await programs[0].until_ready()
            routers = []
            for number in range(ROUTERS):
                address = f"127.0.0.1:{ports.take(0)}"
                log = folder / f"router-{number}.log"
                programs.append(Program("router", server.url, log, "--grpc-bind-address", address))
                routers.append(Router(programs[-1], address))
            programs.append(start_sidecar(server.url, folder, *sockets))
            for program in programs:
                await program.until_ready()
            producers = start_producers(server.url, rate)
            await asyncio.sleep(WARM_UP_S)
            pids = {"nats-server": server.pid, "producers": producers.pid}
            pids |= {program.log.stem: program.pid for program in programs}
            async with (
                calling([routers[0].address], LOOKUP, [b""]) as first,
                calling([routers[1].address], LOOKUP, [b""]) as second,
            ):
                await follow_event(engine, 0, (first, second))
                before = {each: core_seconds(pid) for each, pid in pids.items()}
                batches = programs[0].metric("inferencecache_indexer_messages_folded_total")
                began_s = time.monotonic()
                delays: list[float | None] = []
                for number in range(1, events + 1):
                    due_s = began_s + number * EVERY_S
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                    delays += await follow_event(engine, number, (first, second))
                took_s = time.monotonic() - began_s
                used = {each: (core_seconds(pid) - before[each]) / took_s for each, pid in pids.items()}
                batches = programs[0].metric("inferencecache_indexer_messages_folded_total") - batches
            assert producers.poll() is None
        finally:
            if producers is not None:
                producers.terminate()
                producers.wait()
            end_all(programs)
            await engine.close()
    seen = [delay for delay in delays if delay is not None]
    p50, p99 = np.percentile(seen, [50, 99])
    return {
        "event to answer, p50 ms": float(p50),
        "event to answer, p99 ms": float(p99),
        "event to answer, most ms": max(seen),
        "events that were not seen": float(len(delays) - len(seen)),
        "batches a second": batches / took_s,
        **{f"{each}, cores": share for each, share in used.items()},
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=RATE, help="batches a second beside the engine's")
    parser.add_argument("--events", type=int, default=EVENTS, help="of the engine")
    parser.add_argument("--produce", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.produce:
        uvloop.run(produce(arguments.produce, arguments.rate))
        return
    figures = uvloop.run(run(arguments.rate, arguments.events))
    hand_in(figures)
    for name, figure in figures.items():
        print(f"{name:>40} {figure:10.2f}")


if __name__ == "__main__":
    main()
