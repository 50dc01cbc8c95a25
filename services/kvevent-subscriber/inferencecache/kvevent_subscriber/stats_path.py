"""The statistics path: a metrics page each interval, made into one sample a replica [SUB-001]."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from inferencecache.core.service import get_logger
from inferencecache.kvevent_subscriber.channel import Channel
from inferencecache.kvevent_subscriber.engine_metrics import (
    PageError,
    StatsDeriver,
    profile_of,
    read_page,
    start_time_of,
)
from inferencecache.kvevent_subscriber.load_signal import LoadSignal, Notice
from inferencecache.kvevent_subscriber.scrape import Fetched, ScrapeError, fetch
from inferencecache.kvevent_subscriber.settings import SubscriberSettings

SCRAPE_LIMIT_S: Final = 5.0
IDENTIFY_LIMIT_S: Final = 1.0
DELIVERY_LIMIT_S: Final = 5.0

logger = get_logger("stats")


async def identify(url: str) -> str:
    """Which process the engine is, by its metrics page; empty when it does not say within a second."""
    try:
        return start_time_of((await fetch(url, IDENTIFY_LIMIT_S)).text)
    except ScrapeError:
        return ""


class StatsPath:
    """Reads the page of one engine for all its channels [SUB-130, SUB-146]."""

    def __init__(self, settings: SubscriberSettings, channels: Sequence[Channel]) -> None:
        self._settings = settings
        self._profile = profile_of(settings.scheme)
        self._channels = [
            (channel, StatsDeriver(self._profile, settings.stats), LoadSignal()) for channel in channels
        ]

    async def run(self) -> None:
        """Read, tell, sleep, until cancelled."""
        if self._settings.scheme not in ("vllm", "sglang"):
            logger.warning(
                "metrics_profile",
                msg="the hash scheme is neither vllm nor sglang; the metrics page is read like vLLM's",
                hash_scheme=self._settings.scheme,
            )
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            next_at = max(next_at + self._settings.stats_interval_s, loop.time())
            await asyncio.sleep(next_at - loop.time())
            await self._tick()

    async def _tick(self) -> None:
        try:
            page = await fetch(self._settings.metrics_url, SCRAPE_LIMIT_S)
        except ScrapeError as error:
            for channel, _, signal in self._channels:
                channel.diary.count("scrapes_failed")
                _show(signal.failed(error.reason), channel)
            return
        await asyncio.gather(*(self._tell(page, *entry) for entry in self._channels))

    async def _tell(
        self, fetched: Fetched, channel: Channel, deriver: StatsDeriver, signal: LoadSignal
    ) -> None:
        rank = channel.ranks[0] if self._settings.rank_replicas else None
        try:
            page = read_page(
                fetched.text, fetched.content_type, self._profile, self._settings.engine_model_name, rank
            )
        except PageError as error:
            channel.diary.count("scrapes_failed")
            _show(signal.failed(error.reason), channel)
            return
        channel.engine_is(page.started)
        channel.uplink.submit_stats(deriver.derive(page))
        try:
            async with asyncio.timeout(DELIVERY_LIMIT_S):
                await channel.uplink.stats_stored.wait()
        except TimeoutError:
            _show(signal.failed("the log did not acknowledge the sample in time"), channel)
        else:
            _show(signal.delivered(), channel)


def _show(notice: Notice | None, channel: Channel) -> None:
    if notice is not None:
        say = getattr(logger, notice.level)
        say(notice.event, msg=notice.text, replica=channel.replica, ticks=notice.ticks, cause=notice.cause)
