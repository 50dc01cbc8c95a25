"""A sidecar in the test's own process, and what it puts into the log as the model reads it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.log import Log, Reader, StreamMessage, ensure_assets, ensure_layout
from inferencecache.core.log.subjects import events_stream, parse_subject
from inferencecache.core.service import NatsSettings
from inferencecache.kvevent_subscriber.settings import read_settings
from inferencecache.kvevent_subscriber.sidecar import Sidecar
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import AnyRecord, Batch, DecodedBatch, decode_batch
from inferencecache.schemas.senders import Sender
from tests.oracle.model import NaiveFold
from tests.support.engine import BLOCK

REPLICA = "vllm-0"


class LogMessage:
    """A message as the model folds it."""

    def __init__(self, message: StreamMessage) -> None:
        self.position: Position = message.position
        self.sender: Sender = parse_subject(message.subject)[2]
        self.batch: DecodedBatch | None = decode_batch(message.payload)


class LogTail:
    """Everything that is in the log, read as it comes and folded by the model."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self.fold = NaiveFold()
        self.wanted: list[object] = []

    def deliver(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            read = LogMessage(message)
            assert read.batch is not None
            assert (read.batch.unknown, read.batch.malformed) == (0, 0)
            self.batches.append(read.batch.batch)
            self.wanted += self.fold.fold(read)

    def records(self, *kinds: type[AnyRecord]) -> list[AnyRecord]:
        """All records of these kinds so far."""
        return [record for batch in self.batches for record in batch.records if isinstance(record, kinds)]

    def held(self, replica: str = REPLICA) -> set[bytes]:
        """The keys that the fold says the replica holds."""
        return {hold.key.to_bytes(8, "big") for hold in self.fold.holds if hold.replica == replica}

    def certain(self) -> set[bytes]:
        """Those of them that are certain."""
        return {hold.key.to_bytes(8, "big") for hold, how in self.fold.holds.items() if not how.uncertain}

    def incarnations(self) -> list[str]:
        """Incarnations in the order of their first batch."""
        return list(dict.fromkeys(batch.incarnation for batch in self.batches))


@contextlib.asynccontextmanager
async def log_tail(nats_url: str) -> AsyncIterator[LogTail]:
    """A log of one partition on this server, followed from its start."""
    log = await Log.connect(NatsSettings(nats_url, insecure=True), name="test", timeout_s=10)
    layout = await ensure_layout(log, default=Layout(partitions=1))
    await ensure_assets(log, layout)
    async with generation_tail(log, layout.generation) as tail:
        yield tail
    await log.close()


@contextlib.asynccontextmanager
async def generation_tail(log: Log, generation: int) -> AsyncIterator[LogTail]:
    """The only partition of a generation that exists."""
    tail = LogTail(log)
    reader = Reader(log, events_stream(generation, 0), Position(), tail.deliver, lambda lost: None)
    reading = asyncio.create_task(reader.run())
    yield tail
    reading.cancel()
    await asyncio.wait([reading])


class Running:
    """A sidecar in this process."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.sidecar = Sidecar(read_settings(arguments, {"POD_UID": "uid-1"}))
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(self.sidecar.run(self._stop))

    async def stop(self) -> int:
        """End it as a signal would; its exit code."""
        self._stop.set()
        async with asyncio.timeout(10):
            return await self.task

    @property
    def certain(self) -> bool:
        """Is there a connection to the engine, with no replay under way?"""
        return all(channel.path.certain for channel in self.sidecar._channels)

    def counter(self, name: str) -> int:
        """One counter, summed over its reasons and replicas."""
        return sum(
            amount
            for channel in self.sidecar._channels
            for (counted, _), amount in channel.counters().items()
            if counted == name
        )


StartSidecar = Callable[..., Running]


@contextlib.asynccontextmanager
async def sidecars(nats_url: str, *defaults: str) -> AsyncIterator[StartSidecar]:
    """Starts sidecars of replica `REPLICA` by `start("--flag=value", …)`; all of them stop at the end."""
    running: list[Running] = []

    def start(*arguments: str) -> Running:
        common = (
            f"--nats-url={nats_url}",
            "--insecure-nats",
            f"--replica-id={REPLICA}",
            "--model-id=m",
            "--tenant-id=t",
            "--health-address=127.0.0.1:0",
            "--log-level=error",
        )
        started = Running((*common, *defaults, *arguments))
        running.append(started)
        return started

    try:
        yield start
    finally:
        for started in running:
            if not started.task.done():
                await started.stop()


def keys(*tokens: int) -> list[bytes]:
    """The keys of a prompt's blocks."""
    return prefix_digests(tokens, BLOCK)
