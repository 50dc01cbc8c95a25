"""How the controller writes the policy bucket."""

from __future__ import annotations

import asyncio
import time

import pytest

from inferencecache.controller.intent.bucket import CALL_LIMIT_S, IntentBucket
from inferencecache.controller.reconciling.queue import RetryError
from inferencecache.core.log import Bucket, Log, jetstream
from inferencecache.core.log.assets import ensure_assets
from inferencecache.core.log.subjects import POLICY
from inferencecache.schemas.layout import Layout
from tests.support.nats import NatsServer
from tests.support.waiting import eventually


async def test_only_what_differs_is_written(log: Log) -> None:
    bucket = IntentBucket(log, lambda _: None)
    first = await bucket.put("template.a.b", b"one")
    assert await bucket.put("template.a.b", b"one") == first
    second = await bucket.put("template.a.b", b"two")
    assert second > first
    await bucket.remove("template.a.b")
    await bucket.remove("template.a.b")
    assert await Bucket(log, POLICY).get("template.a.b") is None
    assert await bucket.put("template.a.b", b"two") > second


@pytest.mark.rule("CTL-07")
async def test_nothing_is_written_while_another_process_may_lead(log: Log) -> None:
    leads = [True]
    bucket = IntentBucket(log, lambda _: None, lambda: leads[0])
    first = await bucket.put("template.a.b", b"one")
    leads[0] = False
    with pytest.raises(RetryError):
        await bucket.put("template.a.b", b"two")
    with pytest.raises(RetryError):
        await bucket.put("template.a.c", b"two")
    with pytest.raises(RetryError):
        await bucket.remove("template.a.b")
    (kept,) = await Bucket(log, POLICY).entries()
    assert (kept.key, kept.value, kept.revision) == ("template.a.b", b"one", first)


async def test_whoever_changes_a_key_it_is_told(log: Log) -> None:
    told: list[str] = []
    kept = Bucket(log, POLICY)
    await kept.put("template.a.b", b"1")
    following = asyncio.ensure_future(IntentBucket(log, told.append).run())
    await eventually(lambda: told == ["template.a.b"], what="what was there before")
    revision = await kept.put("topology.a.b", b"1")
    await eventually(lambda: told[1:] == ["topology.a.b"])
    await kept.delete("topology.a.b", revision)
    await eventually(lambda: told[1:] == ["topology.a.b"] * 2)
    following.cancel()


async def test_a_bucket_that_somebody_deleted_is_asked_for(log: Log) -> None:
    missing = asyncio.Event()
    bucket = IntentBucket(log, lambda _: None, on_missing=missing.set)
    await jetstream.delete_stream(log, f"KV_{POLICY}")
    with pytest.raises(RetryError):
        await bucket.put("template.a.b", b"one")
    assert missing.is_set()
    await ensure_assets(log, Layout(partitions=1))
    assert await bucket.put("template.a.b", b"one")


@pytest.mark.rule("CTL-05")
async def test_no_call_lasts_longer_than_its_limit(log: Log, nats_server: NatsServer) -> None:
    nats_server.pause()
    try:
        started = time.monotonic()
        with pytest.raises(RetryError) as failure:
            await IntentBucket(log, lambda _: None).put("set", b"{}")
        assert failure.value.within_s < 10, "it is written soon after NATS is back"
        assert time.monotonic() - started < CALL_LIMIT_S + 5
    finally:
        nats_server.resume()
