"""Assets are created once, whoever comes first, and what differs is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from inferencecache.core.log import jetstream
from inferencecache.core.log.assets import (
    LEAST_STREAM_BYTES,
    LayoutTooNewError,
    LayoutUnreadableError,
    StoreTooSmallError,
    UnsafeRetentionError,
    ensure_assets,
    ensure_layout,
    read_layout,
    wait_for_layout,
)
from inferencecache.core.log.buckets import Bucket
from inferencecache.core.partitions.foundation import Foundation
from inferencecache.core.protocol.layouts import succeed
from inferencecache.core.service import AssetSettings
from inferencecache.schemas.layout import CurrentLayout, Layout
from tests.integration.log.conftest import Connect
from tests.support.nats import NatsServer
from tests.support.waiting import eventually


async def test_all_assets_exist_afterwards_and_creating_them_again_changes_nothing(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    layout = Layout(3, 2)
    logs = [await connect(nats_server) for _ in range(3)]
    await asyncio.gather(*(ensure_assets(each, layout) for each in logs))
    assert await ensure_assets(log, layout) == []
    names = await jetstream.call(log, "STREAM.NAMES", None, dict[str, object])
    assert sorted(names["streams"]) == sorted(  # type: ignore[call-overload]
        ["IC_EVENTS_3_0", "IC_EVENTS_3_1", "IC_DELTAS_3_0", "IC_DELTAS_3_1", "OBJ_IC_SNAPSHOTS"]
        + [f"KV_IC_{name}" for name in ("REFS", "POLICY", "AGGREGATE", "MEMBERS", "LAYOUT")]
    )
    events = (await jetstream.stream_info(log, "IC_EVENTS_3_0")).config
    assert events["compression"] == "s2"
    assert events["max_age"] == 24 * 3600 * 10**9
    assert events["max_bytes"] == 1024**3


async def test_the_first_to_start_sets_the_layout_for_all(nats_server: NatsServer, connect: Connect) -> None:
    logs = [await connect(nats_server) for _ in range(4)]
    assert await read_layout(logs[0]) is None
    waiting = asyncio.create_task(wait_for_layout(logs[0]))
    layouts = await asyncio.gather(
        *(ensure_layout(log, default=Layout(partitions=n + 1)) for n, log in enumerate(logs))
    )
    assert len(set(map(str, layouts))) == 1
    assert await waiting == layouts[0] == await read_layout(logs[1])


async def test_a_layout_of_a_newer_schema_is_refused(nats_server: NatsServer, connect: Connect) -> None:
    log = await connect(nats_server)
    await ensure_assets(log, Layout())
    await Bucket(log, "IC_LAYOUT").put("layout", msgspec.json.encode(Layout(schema=99)))
    with pytest.raises(LayoutTooNewError, match="99"):
        await ensure_layout(log, default=Layout())


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"partitions": "two"}', b'{"partitions": 0}'])
async def test_a_value_that_is_no_layout_is_refused_by_name(
    nats_server: NatsServer, connect: Connect, value: bytes
) -> None:
    log = await connect(nats_server)
    await ensure_assets(log, Layout(partitions=1))
    await Bucket(log, "IC_LAYOUT").put("layout", value)
    with pytest.raises(LayoutUnreadableError, match="IC_LAYOUT"):
        await read_layout(log)


async def test_what_runs_outlives_a_layout_that_becomes_unreadable(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    foundation = Foundation(log, AssetSettings(partitions=1))
    keeping = asyncio.create_task(foundation.keep(await foundation.lay(), lambda _: None))
    with capture_logs() as lines:
        await Bucket(log, "IC_LAYOUT").put("layout", b"{")
        await eventually(lambda: lines or keeping.done())
    assert {line["event"] for line in lines} == {"assets_unsafe"}
    assert not keeping.done()
    keeping.cancel()


async def test_a_changed_stream_is_reported_and_left_as_it_is(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await ensure_assets(log, Layout(partitions=1))
    config = (await jetstream.stream_info(log, "IC_EVENTS_1_0")).config
    await jetstream.update_stream(log, config | {"max_age": 12 * 3600 * 10**9})
    drifts = await ensure_assets(log, Layout(partitions=1))
    assert [(drift.stream, drift.setting, drift.actual) for drift in drifts] == [
        ("IC_EVENTS_1_0", "max_age", 12 * 3600 * 10**9)
    ]


async def test_a_log_that_forgets_before_its_snapshots_is_refused(
    nats_server: NatsServer, connect: Connect
) -> None:
    log = await connect(nats_server)
    await ensure_assets(log, Layout(partitions=1))
    config = (await jetstream.stream_info(log, "IC_EVENTS_1_0")).config
    await jetstream.update_stream(log, config | {"max_age": 3600 * 10**9})
    with pytest.raises(UnsafeRetentionError, match="IC_EVENTS_1_0"):
        await ensure_assets(log, Layout(partitions=1))
    assert await ensure_assets(log, Layout(partitions=1), snapshot_period_s=600)


async def test_streams_shrink_to_what_the_server_can_reserve(
    nats_servers: Callable[..., NatsServer], connect: Connect
) -> None:
    limit = (
        "accounts {{ A {{ users: [{{user: a, password: b}}], jetstream: {{max_file: {}}} }} }}\n"
        "no_auth_user: a"
    )
    small = nats_servers(extra=limit.format(1024**3))
    log = await connect(small)
    await ensure_assets(log, Layout())
    sizes = [(await jetstream.stream_info(log, f"IC_EVENTS_1_{p}")).config["max_bytes"] for p in (0, 1)]
    assert sizes == [1024**3 // 8] * 2
    tiny = nats_servers(extra=limit.format(LEAST_STREAM_BYTES))
    log = await connect(tiny)
    with pytest.raises(StoreTooSmallError, match="max_file_store"):
        await ensure_assets(log, Layout())


async def test_generations_one_after_the_other_fit_a_server_that_does_not_say_what_it_can_store(
    nats_servers: Callable[..., NatsServer], connect: Connect
) -> None:
    log = await connect(nats_servers(max_file_store="1GB"))
    layout = CurrentLayout(1, 2)
    for partitions in (4, 8, 3):
        await ensure_assets(log, layout)
        sizes = [
            (await jetstream.stream_info(log, f"IC_EVENTS_{layout.generation}_{p}")).config["max_bytes"]
            for p in range(layout.partitions)
        ]
        assert len(set(sizes)) == 1
        assert sizes[0] >= LEAST_STREAM_BYTES
        layout = succeed(layout, partitions=partitions)


async def test_streams_that_hold_something_keep_their_room_when_others_need_some(
    nats_servers: Callable[..., NatsServer], connect: Connect
) -> None:
    log = await connect(nats_servers(max_file_store="1GB"))
    await ensure_assets(log, Layout(partitions=1))
    await log.publisher.publish("ic.ev.1.0._.o", b"x")
    before = (await jetstream.stream_info(log, "IC_EVENTS_1_0")).config
    await ensure_assets(log, CurrentLayout(2, 20, older=(Layout(partitions=1),)))
    assert (await jetstream.stream_info(log, "IC_EVENTS_1_0")).config == before
