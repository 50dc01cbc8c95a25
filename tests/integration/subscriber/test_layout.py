"""A sidecar moves with the layout: it tells all it knows in the new generation, nothing more in the old."""

from __future__ import annotations

import msgspec
import pytest

from inferencecache.core.log import Bucket, Log, ensure_assets
from inferencecache.core.log.subjects import LAYOUT, LAYOUT_KEY, resync_subject
from inferencecache.core.protocol.layouts import succeed
from inferencecache.kvevent_subscriber import sidecar as sidecar_module
from inferencecache.schemas.ids import Incarnation
from inferencecache.schemas.layout import CurrentLayout
from inferencecache.schemas.records import Begin
from inferencecache.schemas.requests import ResyncRequest
from tests.support.engine import Engine
from tests.support.sidecar import REPLICA, LogTail, StartSidecar, generation_tail, keys
from tests.support.waiting import eventually

PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)
OTHER = (50, 51, 52, 53)
SECOND = CurrentLayout(2, 1, older=CurrentLayout(1, 1).generations)


async def put(log: Log, layout: CurrentLayout) -> None:
    await Bucket(log, LAYOUT).put(LAYOUT_KEY, msgspec.json.encode(layout))


async def test_it_begins_anew_as_soon_as_a_new_generation_is_written(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_module, "LAYOUT_INTERVAL_S", 3600.0)
    sidecar = start_sidecar()
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    old = tail.incarnations()
    await ensure_assets(tail.log, SECOND)
    async with generation_tail(tail.log, 2) as moved:
        await put(tail.log, SECOND)
        await eventually(lambda: moved.held() == set(keys(*PROMPT)))
        await engine.store([13], OTHER)
        await eventually(lambda: moved.held() == {*keys(*PROMPT), *keys(*OTHER)})
        assert tail.held() == set(keys(*PROMPT))
        assert len(moved.incarnations()) == 1
        assert moved.incarnations() != old
        assert sidecar.sidecar.ready


async def test_it_begins_in_the_new_generation_once_somebody_has_created_its_streams(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    start_sidecar()
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    await put(tail.log, SECOND)
    await engine.store([13], OTHER)
    await ensure_assets(tail.log, SECOND)
    async with generation_tail(tail.log, 2) as moved:
        await eventually(lambda: moved.held() >= {*keys(*PROMPT), *keys(*OTHER)})
        assert len(moved.records(Begin)) == 1


async def test_an_owner_of_the_old_generation_cannot_make_it_begin_again(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    start_sidecar()
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    [old] = tail.incarnations()
    await ensure_assets(tail.log, SECOND)
    async with generation_tail(tail.log, 2) as moved:
        await put(tail.log, SECOND)
        await eventually(lambda: moved.held() == set(keys(*PROMPT)))
        [new] = moved.incarnations()
        for request in (
            ResyncRequest("resync", Incarnation(old)),
            ResyncRequest("fenced", Incarnation(old), begun_at=1_000_000),
            ResyncRequest("resync", Incarnation(new)),
        ):
            await tail.log.send(resync_subject("t", "m", REPLICA), msgspec.json.encode(request))
        await eventually(lambda: len(moved.records(Begin)) > 1)
        await engine.store([13], OTHER)
        await eventually(lambda: moved.held() == {*keys(*PROMPT), *keys(*OTHER)})
        assert len(moved.records(Begin)) == 2, "only the last request was about its incarnation"


async def test_it_follows_one_change_after_the_other(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    start_sidecar()
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    third = succeed(msgspec.structs.replace(SECOND, partitions=2), partitions=1)
    await ensure_assets(tail.log, third)
    await put(tail.log, SECOND)
    await put(tail.log, third)
    async with generation_tail(tail.log, 3) as moved:
        await eventually(lambda: moved.held() == set(keys(*PROMPT)))


async def test_a_layout_that_it_cannot_read_leaves_it_where_it_is(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar()
    await eventually(lambda: tail.records(Begin))
    await put(tail.log, msgspec.structs.replace(SECOND, schema=99))
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)))
    assert sidecar.sidecar.ready
