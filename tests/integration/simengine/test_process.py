"""The simulated engine as a process: what it serves, what it publishes, how it ends."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio
from aiohttp import ClientSession

from tests.support.ports import free_port

END = b"\xff" * 8


@asynccontextmanager
async def engine(*arguments: str) -> AsyncIterator[Process]:
    """A started process; it is killed if the test leaves it running."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inferencecache.simengine", *arguments), stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await asyncio.wait_for(stream.readline(), 20)).decode()


async def replayed_from_0(context: zmq.asyncio.Context, port: int) -> list[Any]:
    """Every batch that can still be replayed."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(f"tcp://127.0.0.1:{port}")
        await dealer.send_multipart([b"", bytes(8)])
        batches = []
        while (parts := await asyncio.wait_for(dealer.recv_multipart(), 10))[-2] != END:
            batches.append(msgspec.msgpack.decode(parts[-1]))
        return batches


async def test_a_completion_is_served_and_its_blocks_can_be_replayed() -> None:
    port, events, replay = free_port(), free_port(), free_port()
    async with engine(
        f"--http-bind-address=127.0.0.1:{port}",
        f"--events-endpoint=tcp://127.0.0.1:{events}",
        f"--replay-endpoint=tcp://127.0.0.1:{replay}",
        "--time-scale=100",
    ) as process:
        assert f"http://127.0.0.1:{port}" in await line_of(process.stderr)
        body = {"prompt": list(range(40)), "max_tokens": 2}
        async with (
            ClientSession() as http,
            http.post(f"http://127.0.0.1:{port}/v1/completions", json=body) as answer,
        ):
            assert answer.status == 200
        with zmq.asyncio.Context() as context:
            [[_, [event], _]] = await replayed_from_0(context, replay)
        assert (event["type"], event["token_ids"]) == ("BlockStored", list(range(32)))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0


@pytest.mark.rule("SUB-224")
async def test_an_engine_in_another_form_crashes_and_starts_again_in_time() -> None:
    port, events, replay = free_port(), free_port(), free_port()
    async with engine(
        "--engine=sglang",
        f"--http-bind-address=127.0.0.1:{port}",
        f"--events-endpoint=tcp://127.0.0.1:{events}",
        f"--replay-endpoint=tcp://127.0.0.1:{replay}",
        "--restart-every=2s",
    ) as process:
        assert f"http://127.0.0.1:{port}" in await line_of(process.stderr)
        assert f"http://127.0.0.1:{port}" in await line_of(process.stderr)
        with zmq.asyncio.Context() as context:
            [[_, events_after, _]] = await replayed_from_0(context, replay)
        assert events_after == [{"type": "AllBlocksCleared"}]
        async with ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as page:
            assert "sglang:num_running_reqs" in await page.text()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--engine=sglang", "--hash-kind=bytes"], "--hash-kind"),
        (["--engine=sglang", "--event-encoding=tuple", "--lora-adapters=a"], "--lora-adapters"),
    ],
)
async def test_what_an_engine_cannot_say_ends_it_with_the_setting_to_change(
    flags: list[str], named: str
) -> None:
    async with engine(*flags) as process:
        assert named in await line_of(process.stderr)
        assert await asyncio.wait_for(process.wait(), 10) == 1


@pytest.mark.parametrize("flag", ["--http-bind-address", "--events-endpoint"])
async def test_a_taken_port_ends_it_with_the_setting_to_change(flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        addresses = {
            "--http-bind-address": f"127.0.0.1:{free_port()}",
            "--events-endpoint": f"tcp://127.0.0.1:{free_port()}",
            "--replay-endpoint": "",
        }
        scheme = "tcp://" if addresses[flag].startswith("tcp") else ""
        addresses[flag] = f"{scheme}127.0.0.1:{port}"
        async with engine(*(f"{name}={value}" for name, value in addresses.items())) as process:
            assert flag in await line_of(process.stderr)
            assert await asyncio.wait_for(process.wait(), 10) == 1


@pytest.mark.rule("SUB-198", "SUB-200", "SUB-201")
async def test_the_fake_engine_says_what_to_expect_and_repeats_its_message() -> None:
    port = free_port()
    async with engine("--fake", f"--bind=tcp://127.0.0.1:{port}", "--interval=10ms") as process:
        assert (await line_of(process.stdout)).startswith("EXPECT prefix_hash[0]=83f90a7debd4f39c")
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as subscriber:
            subscriber.connect(f"tcp://127.0.0.1:{port}")
            subscriber.subscribe(b"kv-events")
            first = await asyncio.wait_for(subscriber.recv_multipart(), 10)
            second = await asyncio.wait_for(subscriber.recv_multipart(), 10)
        assert first[0] == b"kv-events"
        assert first[2] == second[2]
        assert int.from_bytes(second[1]) == int.from_bytes(first[1]) + 1
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 0


@pytest.mark.rule("SUB-202")
async def test_the_fake_engine_replays_restarts_skips_numbers_and_ends() -> None:
    port, replay, page = free_port(), free_port(), free_port()
    async with engine(
        "--fake",
        f"--bind=tcp://127.0.0.1:{port}",
        f"--replay-bind=tcp://127.0.0.1:{replay}",
        "--replay-topic=false",
        f"--metrics-bind=127.0.0.1:{page}",
        "--metrics-profile=sglang",
        "--interval=50ms",
        "--skip-sequence=2",
        "--restart-every=5",
        "--count=40",
        "--ts=now",
    ) as process:
        await line_of(process.stdout)
        async with ClientSession() as http, http.get(f"http://127.0.0.1:{page}/metrics") as answer:
            assert "sglang:num_queue_reqs 0" in await answer.text()
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as subscriber:
            subscriber.connect(f"tcp://127.0.0.1:{port}")
            subscriber.subscribe(b"")
            heard = [await asyncio.wait_for(subscriber.recv_multipart(), 10) for _ in range(15)]
            again = await replayed_from_0(context, replay)
        numbers = [int.from_bytes(parts[1]) for parts in heard]
        assert 0 in numbers
        assert {after - before for before, after in itertools.pairwise(numbers)} >= {1, 2}
        assert 1 <= len(again) <= 5
        assert all(time_s > 1.7e9 for time_s, _ in again)
        assert await asyncio.wait_for(process.wait(), 20) == 0
