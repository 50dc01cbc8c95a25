"""The process: channels, statistics, the connection to the log and the health page.

Nothing waits for anything else: the engine's sockets are read from the start, the log is connected to
for as long as it takes, and a page that cannot be served is a warning [SUB-182, SUB-187].
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import zmq.asyncio

from inferencecache.core.log import ApiError, Bucket, Log, Message, NoAnswerError, read_layout
from inferencecache.core.log.assets import LayoutUnusableError
from inferencecache.core.log.subjects import (
    LAYOUT,
    LAYOUT_KEY,
    partition_of,
    replica_subject,
    resync_subject,
)
from inferencecache.core.service import HttpEndpoints, ListenError, Queue, get_logger
from inferencecache.kvevent_subscriber.channel import Channel
from inferencecache.kvevent_subscriber.orphans import MAX_HELD_BLOCKS, MAX_HELD_TOKENS
from inferencecache.kvevent_subscriber.settings import SubscriberSettings
from inferencecache.kvevent_subscriber.source import MAX_HELD_BYTES, MAX_HELD_MESSAGES
from inferencecache.kvevent_subscriber.stats_path import StatsPath, identify
from inferencecache.kvevent_subscriber.telemetry import Gauges, registry_of
from inferencecache.schemas.ids import ReplicaId
from inferencecache.schemas.layout import Layout
from inferencecache.schemas.requests import ResyncRequest
from inferencecache.schemas.senders import ReplicaSender
from inferencecache.schemas.unreadable import UNREADABLE

LAYOUT_INTERVAL_S: Final = 5.0
LAYOUT_RETRY_S: Final = 0.25
DRAIN_LIMIT_S: Final = 5.0
CANCEL_AGAIN_S: Final = 0.25

logger = get_logger("sidecar")

_requests = msgspec.json.Decoder(ResyncRequest)


class Sidecar:
    """One engine's sidecar. `run` returns when `stop` is set and what was read has been delivered."""

    def __init__(self, settings: SubscriberSettings) -> None:
        self._settings = settings
        self._context = zmq.asyncio.Context()
        ranks = range(len(settings.endpoints))
        groups = [(rank,) for rank in ranks] if settings.rank_replicas else [tuple(ranks)]
        self._channels = [self._channel(group) for group in groups]
        self._log: Log | None = None
        self.endpoints = HttpEndpoints(
            settings.health_address,
            lambda: self.ready,
            registry_of([channel.counters for channel in self._channels], self._gauges, self._queues),
            setting="--health-address",
        )

    @property
    def ready(self) -> bool:
        """Is there a connection, and has every replica begun in the log over it?"""
        return (
            self._log is not None
            and self._log.connected
            and all(channel.uplink.producer.has_begun for channel in self._channels)
        )

    async def run(self, stop: asyncio.Event) -> int:
        """Work until `stop`; the exit code."""
        self._announce()
        await self._serve_health()
        reading = [asyncio.create_task(channel.run()) for channel in self._channels]
        others = [
            asyncio.create_task(work)
            for work in (StatsPath(self._settings, self._channels).run(), self._follow_log())
        ]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait((*reading, *others, stopped), return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
            await _cancel(*reading)
            await self._drain()
        finally:
            await _cancel(*reading, *others, stopped)
            await self._close()
        logger.info("stopped", replica=self._settings.replica)
        return 0

    def _channel(self, ranks: tuple[int, ...]) -> Channel:
        replica = self._settings.replica
        if self._settings.rank_replicas:
            replica = ReplicaId(f"{replica}@dp{ranks[0]}")
        return Channel(
            self._settings, replica, ranks, self._context, lambda: identify(self._settings.metrics_url)
        )

    def _announce(self) -> None:
        settings = self._settings
        logger.info(
            "sidecar started",
            endpoint=settings.endpoints[0],
            ranks=len(settings.endpoints),
            nats=settings.nats.address,
            replica=settings.replica,
            model=settings.model,
            tenant=settings.tenant,
            metrics_url=settings.metrics_url,
            stats_interval_s=settings.stats_interval_s,
            cache_tier=settings.stats.cache_tier,
            engine_model_name=settings.engine_model_name,
            ignore_block_removed=settings.mapping.ignore_block_removed,
        )
        if not settings.nats.has_credentials and not settings.nats.insecure:
            logger.warning(
                "nats_unauthenticated",
                msg="connecting to NATS without credentials; set NATS_CREDS or --nats-creds-file, or "
                "--insecure-nats if that is meant",
            )

    async def _serve_health(self) -> None:
        try:
            await self.endpoints.start()
        except ListenError as error:
            logger.warning("no_health_page", msg=str(error))

    # ------------------------------------------------------------------ the log

    async def _follow_log(self) -> None:
        """Connect, hear of resyncs, and put every replica where the layout says, for ever."""
        process = await identify(self._settings.metrics_url)
        for channel in self._channels:
            channel.engine_is(process)
        log = self._log = await Log.connect(
            self._settings.nats, name=f"kvevent-subscriber {self._settings.replica}"
        )
        for channel in self._channels:
            channel.uplink.attach(log)
            await log.subscribe(
                resync_subject(self._settings.tenant, self._settings.model, channel.replica),
                lambda message, channel=channel: _request(channel, message),  # type: ignore[misc]
            )
        written = asyncio.Event()
        await Bucket(log, LAYOUT).listen(LAYOUT_KEY, written.set)
        is_sign = False
        while True:
            written.clear()
            found = await self._look_up_layout(log)
            # A sign may come before the bucket shows what it is about.
            pause_s = LAYOUT_INTERVAL_S if found and not is_sign else LAYOUT_RETRY_S
            is_sign = await _happens_within(written, pause_s)

    async def _look_up_layout(self, log: Log) -> bool:
        try:
            layout = await read_layout(log)
        except (NoAnswerError, ApiError) as error:
            logger.info("layout_unreadable", msg=str(error))
            return False
        except LayoutUnusableError as error:
            logger.warning("layout_unusable", msg=str(error))
            return True
        if layout is not None:
            for channel in self._channels:
                channel.uplink.placed(self._subject(channel, layout))
        return layout is not None

    def _subject(self, channel: Channel, layout: Layout) -> str:
        sender = ReplicaSender(self._settings.tenant, self._settings.model, channel.replica)
        partition = partition_of(sender.tenant, sender.model, sender.replica, layout)
        return replica_subject(layout.generation, partition, sender)

    # ------------------------------------------------------------------ the end

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_LIMIT_S):
                await asyncio.gather(*(channel.uplink.drain() for channel in self._channels))
        except TimeoutError:
            logger.warning("drain_cut_short", msg="not everything read from the engine is in the log")

    async def _close(self) -> None:
        for channel in self._channels:
            await channel.uplink.close()
        if self._log is not None:
            await self._log.close()
        await self.endpoints.stop()
        self._context.destroy(linger=0)

    def _gauges(self) -> Gauges:
        return Gauges(
            tracked_blocks=sum(channel.path.tracked_blocks for channel in self._channels),
            block_size=self._channels[0].path.block_size,
            outbox_records=sum(channel.uplink.producer.waiting_records for channel in self._channels),
            last_event_timestamp_seconds=max(channel.path.last_event_time_s for channel in self._channels),
        )

    def _queues(self) -> Iterator[Queue]:
        """Of replicas' queues the fullest: each has its own limit."""
        producers = [channel.uplink.producer for channel in self._channels]
        waiting = max(producer.waiting_records for producer in producers)
        yield Queue("outbox_records", waiting, self._settings.producer.outbox_max)
        paths = [channel.path for channel in self._channels]
        yield Queue("held_messages", max(path.held_messages for path in paths), MAX_HELD_MESSAGES)
        yield Queue("held_bytes", max(path.held_bytes for path in paths), MAX_HELD_BYTES)
        yield Queue("orphan_blocks", max(path.held_blocks for path in paths), MAX_HELD_BLOCKS)
        yield Queue("orphan_tokens", max(path.held_tokens for path in paths), MAX_HELD_TOKENS)


def _request(channel: Channel, message: Message) -> None:
    try:
        request = _requests.decode(message.data)
    except UNREADABLE:
        logger.info("unreadable_request", subject=message.subject, length=len(message.data))
        return
    channel.uplink.requested(request)


async def _happens_within(event: asyncio.Event, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel until they end: a connect that is just succeeding swallows a cancellation."""
    left: set[asyncio.Task[Any]] = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
