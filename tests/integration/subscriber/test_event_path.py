"""What an engine does arrives in the log, whatever dies on the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
import zmq
from structlog.testing import capture_logs

from inferencecache.core.log.subjects import resync_subject
from inferencecache.kvevent_subscriber import channel, source
from inferencecache.schemas.ids import Incarnation
from inferencecache.schemas.records import (
    Alive,
    Begin,
    Cleared,
    Complete,
    Evicted,
    Gap,
    Stats,
    Stored,
)
from inferencecache.schemas.requests import ResyncRequest
from tests.support.engine import Engine, numbered_prompts, stored
from tests.support.nats import NatsServer
from tests.support.sidecar import LogTail, StartSidecar, keys
from tests.support.waiting import eventually

PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)
OTHER = (50, 51, 52, 53)


@pytest.mark.rule("SUB-060", "SUB-005", "SUB-006", "SUB-121")
async def test_what_was_cached_before_the_sidecar_came_is_told_at_start(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    await engine.store([11, 12], PROMPT)
    await engine.remove(12)
    start_sidecar()
    await eventually(lambda: tail.records(Complete))
    assert tail.held() == set(keys(*PROMPT)[:1])
    [begin] = tail.records(Begin)
    assert isinstance(begin, Begin)
    assert (begin.pod_uid, begin.engine, begin.scheme) == ("uid-1", "1790000000.25", "vllm")
    assert engine.replay_requests == [0]
    [told] = tail.records(Stored)
    assert isinstance(told, Stored)
    assert (told.scheme, told.adapter, told.tier, told.width) == ("vllm", "", 1, 8)


async def test_live_events_arrive_in_order(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar()
    await eventually(lambda: engine.replay_requests and sidecar.sidecar.ready)
    await engine.store([11, 12], PROMPT)
    await engine.store([13], OTHER)
    await engine.remove(13)
    await eventually(lambda: tail.records(Evicted))
    assert tail.held() == set(keys(*PROMPT))
    await engine.clear()
    await eventually(lambda: tail.records(Cleared))
    assert tail.held() == set()
    assert len(tail.incarnations()) == 1


@pytest.mark.rule("SUB-055")
async def test_a_gap_is_filled_by_a_replay(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar()
    await eventually(lambda: engine.replay_requests == [0])
    await engine.store([1], OTHER)
    await eventually(tail.held)
    await engine.publish(stored([11], PROMPT[:4]), lost=True)
    await engine.store([12], PROMPT[4:], parent=11)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})
    assert engine.replay_requests == [0, 0]
    assert sidecar.counter("missed_messages") == 1
    assert sidecar.counter("unrecovered_messages") == 0
    assert tail.records(Gap) == []


@pytest.mark.rule("SUB-056", "SUB-057")
async def test_a_hole_that_no_replay_fills_makes_what_was_known_uncertain(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    start_sidecar()
    await eventually(lambda: engine.replay_requests == [0])
    await engine.store([1], OTHER)
    await eventually(tail.held)
    await engine.publish(burnt=True)
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})
    assert tail.records(Gap) == [Gap(1)]
    assert tail.certain() == set(keys(*PROMPT))


@pytest.mark.parametrize("begin_at", [0, 2, 7], ids=["lower", "exactly next", "higher"])
@pytest.mark.parametrize("metrics", [True, False])
@pytest.mark.rule("SUB-052", "SUB-053")
async def test_blocks_of_a_dead_engine_process_vanish(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar, begin_at: int, metrics: bool
) -> None:
    engine.page = "vllm" if metrics else "load only"
    start_sidecar()
    await eventually(lambda: engine.replay_requests == [0])
    await engine.store([1], OTHER)
    await engine.store([2], (60, 61, 62, 63))
    await eventually(lambda: len(tail.held()) == 2)
    await engine.restart(begin_at=begin_at)
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: tail.held() == set(keys(*PROMPT)), within_s=15)
    assert len(tail.incarnations()) == 2


@pytest.mark.rule("SUB-053")
async def test_without_metrics_and_replay_a_reconnect_is_another_process(
    tail: LogTail, start_sidecar: StartSidecar, engine: Engine
) -> None:
    engine.page = "load only"
    start_sidecar("--replay-endpoint=")

    async def told() -> bool:
        await engine.store([1], OTHER)
        return bool(tail.held())

    await eventually(told)
    await engine.restart(begin_at=1000)
    await eventually(lambda: len(tail.incarnations()) == 2 and not tail.held(), within_s=15)


async def test_the_same_process_behind_a_lost_connection_keeps_its_blocks(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    engine.page = "load only"
    sidecar = start_sidecar()
    await eventually(lambda: engine.replay_requests == [0])
    await engine.store([1], OTHER)
    await eventually(tail.held)
    assert engine._live is not None
    engine._live.unbind(engine.live_endpoint)
    engine._live.close(linger=0)
    await engine.publish(stored([11, 12], PROMPT), lost=True)
    engine._live = await engine._bind(zmq.PUB, engine.live_endpoint)
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)}, within_s=15)
    assert len(tail.incarnations()) == 1
    assert sidecar.counter("engine_restarts") == 0


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_of_nats_loses_nothing_and_repeats_nothing(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar, nats_server: NatsServer, kill: bool
) -> None:
    start_sidecar()
    await eventually(lambda: engine.replay_requests)
    expected: set[bytes] = set()
    prompts = numbered_prompts()
    for _ in range(20):
        hashes, tokens = next(prompts)
        await engine.store(hashes, tokens)
        expected |= set(keys(*tokens))
    await eventually(lambda: tail.held() == expected)
    await asyncio.to_thread(nats_server.kill if kill else nats_server.stop)
    for _ in range(20):
        hashes, tokens = next(prompts)
        await engine.store(hashes, tokens)
        expected |= set(keys(*tokens))
    await engine.remove(2)
    expected.discard(keys(*range(8, 12))[0])
    await asyncio.to_thread(nats_server.start)
    await eventually(lambda: tail.held() == expected, within_s=20)
    assert tail.wanted == []
    assert len(tail.incarnations()) == 1


@pytest.mark.rule("SUB-003", "SUB-116")
async def test_the_engine_is_read_while_nats_hangs(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar, nats_server: NatsServer
) -> None:
    sidecar = start_sidecar()
    await eventually(lambda: engine.replay_requests)
    await engine.store([1], OTHER)
    await eventually(tail.held)
    nats_server.pause()
    try:
        await engine.store([11, 12], PROMPT)
        for _ in range(200):
            await engine.store([1], OTHER)
        await eventually(lambda: sidecar.counter("messages") == 202)
        assert tail.held() == set(keys(*OTHER))
    finally:
        nats_server.resume()
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)}, within_s=20)


@pytest.mark.rule("SUB-003", "SUB-113", "SUB-115", "SUB-116", "SUB-117")
async def test_an_outage_longer_than_the_outbox_ends_in_one_full_resync(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar, nats_server: NatsServer
) -> None:
    sidecar = start_sidecar("--outbox-max=4")
    await eventually(lambda: engine.replay_requests)
    await engine.store([1], OTHER)
    await eventually(tail.held)
    await asyncio.to_thread(nats_server.stop)
    expected = set(keys(*OTHER))
    for hashes, tokens in zip(range(100, 120), range(1000, 1080, 4), strict=True):
        block = tuple(range(tokens, tokens + 4))
        await engine.store([hashes], block)
        await engine.store([hashes + 1000], tuple(token + 500 for token in block))
        await engine.remove(hashes + 1000)
        expected |= set(keys(*block))
    await eventually(lambda: sidecar.counter("messages") == 61)
    await asyncio.to_thread(nats_server.start)
    await eventually(lambda: tail.held() == expected, within_s=20)
    assert len(tail.incarnations()) == 2
    assert sidecar.counter("outbox_overflows") == 1


async def test_a_resync_is_answered_with_a_new_incarnation_and_everything_known(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    start_sidecar()
    await eventually(lambda: engine.replay_requests)
    await engine.store([11, 12], PROMPT)
    await eventually(tail.held)
    subject = resync_subject("t", "m", "vllm-0")
    foreign = ResyncRequest("resync", Incarnation("somebody"))
    await tail.log.send(subject, msgspec.json.encode(foreign))
    await tail.log.send(subject, b"nonsense")
    own = ResyncRequest("resync", Incarnation(tail.incarnations()[0]))
    await tail.log.send(subject, msgspec.json.encode(own))
    await eventually(lambda: len(tail.records(Complete)) == 2)
    assert len(tail.incarnations()) == 2
    assert tail.held() == tail.certain() == set(keys(*PROMPT))


async def test_a_sidecar_whose_name_was_taken_over_stops_publishing(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar()
    await eventually(lambda: engine.replay_requests)
    await engine.store([1], OTHER)
    await eventually(tail.held)
    fenced = ResyncRequest("fenced", Incarnation(tail.incarnations()[0]), 10**6)
    await tail.log.send(resync_subject("t", "m", "vllm-0"), msgspec.json.encode(fenced))
    await eventually(lambda: not sidecar.sidecar.ready)
    before = len(tail.batches)
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: sidecar.counter("messages") == 2)
    assert await sidecar.stop() == 0
    assert len(tail.batches) == before


@pytest.mark.rule("SUB-001", "SUB-130")
async def test_alive_and_statistics_are_told_while_the_engine_is_there(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    engine.running, engine.waiting = 5, 3
    sidecar = start_sidecar("--alive-interval=100ms", "--stats-interval=100ms")
    await eventually(lambda: len(tail.records(Alive)) > 2)
    await eventually(lambda: tail.records(Stats))
    [stats, *_] = tail.records(Stats)
    assert isinstance(stats, Stats)
    assert (stats.requests_running, stats.requests_waiting, stats.pressure) == (5, 3, 8 / 256)
    await engine.stop()
    await eventually(lambda: not sidecar.sidecar._channels[0].path.certain)
    said = len(tail.records(Alive))
    more = len(tail.records(Stats)) + 3
    await eventually(lambda: len(tail.records(Stats)) >= more)
    assert len(tail.records(Alive)) == said


@pytest.mark.rule("SUB-183")
async def test_what_was_read_before_the_end_is_delivered(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar("--window=5s")
    await eventually(lambda: tail.records(Complete) or sidecar.sidecar.ready)
    await engine.store([1], OTHER)
    await engine.store([11, 12], PROMPT)
    await eventually(lambda: sidecar.counter("messages") == 2)
    assert await sidecar.stop() == 0
    await eventually(lambda: tail.held() == {*keys(*PROMPT), *keys(*OTHER)})


@pytest.mark.rule("SUB-185")
@pytest.mark.parametrize("broken", ["replay", "proof"])
async def test_an_unexpected_error_beside_the_live_socket_ends_the_process(
    engine: Engine,
    tail: LogTail,
    start_sidecar: StartSidecar,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    async def fail(*_: object) -> str:
        raise ZeroDivisionError

    sidecar = start_sidecar()
    await eventually(lambda: engine.replay_requests == [0] and sidecar.sidecar.ready)
    await engine.store([1], OTHER)
    [only] = sidecar.sidecar._channels
    await eventually(lambda: only.path.tracked_blocks == 1)
    if broken == "replay":
        monkeypatch.setattr(channel, "replay", fail)
        await engine.publish(lost=True)
        await engine.store([11, 12], PROMPT)
    else:
        monkeypatch.setattr(only, "_identify", fail)
        await engine.restart()
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(15):
            await sidecar.task


@pytest.mark.rule("SUB-014")
async def test_an_engine_that_hangs_up_is_called_at_most_once_a_second_at_uneven_times(
    tail: LogTail, start_sidecar: StartSidecar
) -> None:
    called: list[float] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(asyncio.get_running_loop().time())
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        start_sidecar(f"--engine-endpoint=tcp://127.0.0.1:{port}", "--replay-endpoint=")
        await eventually(lambda: len(called) == 5, within_s=20)
    pauses = [later - earlier for earlier, later in itertools.pairwise(called)]
    assert min(pauses) > 0.9
    assert max(pauses) - min(pauses) > 0.01


@pytest.mark.rule("SUB-058")
async def test_an_engine_without_a_replay_socket_is_asked_once_a_minute_at_most(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar
) -> None:
    await engine.stop()
    engine.replays = False
    await engine.start()
    sidecar = start_sidecar("--replay-timeout=50ms")
    await eventually(lambda: sidecar.counter("replays_timed_out") == 1)
    await engine.store([1], OTHER)
    for _ in range(5):
        await engine.publish(burnt=True)
        await engine.store([1], OTHER)
    await eventually(lambda: sidecar.counter("unrecovered_messages") == 5)
    assert sidecar.counter("replays") == 1
    assert source.MUTE_PAUSE_S == 60.0


@pytest.mark.rule("SUB-018", "SUB-W45")
async def test_an_engine_under_another_topic_is_silence_and_one_warning(
    engine: Engine, tail: LogTail, start_sidecar: StartSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "WARN_OF_SILENCE_AFTER_S", 0.2)
    engine.topic = b""
    with capture_logs() as lines:
        sidecar = start_sidecar("--replay-endpoint=")
        await eventually(lambda: [line for line in lines if line["event"] == "engine_subscribed"])
        await engine.store([1], OTHER)
        await eventually(lambda: [line for line in lines if line["event"] == "no_engine_events"])
    [warned] = [line for line in lines if line["event"] == "no_engine_events"]
    assert warned["topic"] == "kv-events"
    assert warned["endpoint"] == engine.live_endpoint
    assert tail.held() == set()
    assert sidecar.sidecar.endpoints.port > 0


@pytest.mark.rule("SUB-017", "SUB-010", "SUB-013")
async def test_a_sidecar_binds_for_engines_that_connect(tail: LogTail, start_sidecar: StartSidecar) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_sidecar(f"--engine-endpoint=tcp://*:{port}", "--replay-endpoint=", "--topic=")
    async with Engine(topic="whatever", replays=False) as engine:
        assert engine._live is not None
        engine._live.connect(f"tcp://127.0.0.1:{port}")

        async def told() -> bool:
            await engine.store([1], OTHER)
            return tail.held() == set(keys(*OTHER))

        await eventually(told)


@pytest.mark.rule("SUB-017")
async def test_a_bound_sidecar_hears_the_next_engine_before_the_last_one_is_gone(
    tail: LogTail, start_sidecar: StartSidecar
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sidecar = start_sidecar(
        f"--engine-endpoint=tcp://*:{port}",
        "--replay-endpoint=",
        "--topic=",
        "--engine-metrics-url=http://[::1]:1/",
    )
    async with Engine(replays=False) as next_one:
        async with Engine(replays=False) as last:
            assert last._live is not None
            assert next_one._live is not None
            last._live.connect(f"tcp://127.0.0.1:{port}")

            async def the_last_is_told() -> bool:
                await last.store([1], OTHER)
                return tail.held() == set(keys(*OTHER))

            await eventually(the_last_is_told)
            next_one._live.connect(f"tcp://127.0.0.1:{port}")

            async def the_next_is_told() -> bool:
                await next_one.store([1], PROMPT[:4])
                return tail.held() == set(keys(*PROMPT[:4]))

            await eventually(the_next_is_told)
        # The end of the last connection says nothing about the next one.
        await eventually(lambda: sidecar.sidecar._channels[0].path.certain)


@pytest.mark.rule("SUB-020")
async def test_ranks_may_report_as_replicas_of_their_own(tail: LogTail, start_sidecar: StartSidecar) -> None:
    async with engines_on_neighbouring_ports() as (first, second):
        start_sidecar(
            f"--engine-endpoint={first.live_endpoint}",
            "--data-parallel-size=2",
            "--replay-endpoint=",
            "--rank-replicas",
        )

        async def both_are_told() -> bool:
            await first.store([1], OTHER)
            await second.store([1], PROMPT[:4])
            return bool(tail.held("vllm-0@dp0") and tail.held("vllm-0@dp1"))

        await eventually(both_are_told)
        assert tail.held("vllm-0@dp0") == set(keys(*OTHER))
        assert tail.held("vllm-0@dp1") == set(keys(*PROMPT[:4]))


@pytest.mark.rule("SUB-020", "SUB-022")
async def test_ranks_report_under_one_replica(tail: LogTail, start_sidecar: StartSidecar) -> None:
    async with engines_on_neighbouring_ports() as (first, second):
        start_sidecar(
            f"--engine-endpoint={first.live_endpoint}", "--data-parallel-size=2", "--replay-endpoint="
        )

        async def both_are_told() -> bool:
            await first.store([1], OTHER)
            await second.store([1], PROMPT[:4])
            return tail.held() == {*keys(*OTHER), *keys(*PROMPT[:4])}

        await eventually(both_are_told)
        await first.clear()
        await eventually(lambda: tail.held() == set(keys(*PROMPT[:4])))
        assert tail.records(Cleared) == []


@contextlib.asynccontextmanager
async def engines_on_neighbouring_ports() -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines as ranks 0 and 1 of one would be."""
    for _ in range(50):
        async with Engine(replays=False) as first, Engine(replays=False) as second:
            port = int(first.live_endpoint.rpartition(":")[2])
            await second.stop()
            second.live_endpoint = f"tcp://127.0.0.1:{port + 1}"
            try:
                await second.start()
            except zmq.ZMQError:
                continue
            yield first, second
            return
    raise AssertionError("no two neighbouring ports are free")
