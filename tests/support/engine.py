"""A small engine for tests of the sidecar: event socket, replay socket and metrics page, nothing behind them.

Its messages are in vLLM's map form. A restart keeps the ports and begins at number 0 with another
start time. Messages can be kept off the live socket, as when a slow reader loses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

from tests.support.waiting import a_moment

BLOCK = 4
END = b"\xff" * 8


class Engine:
    """Use as an async context manager. `metrics` and `replays` leave a socket out when False."""

    def __init__(self, *, topic: str = "kv-events", replays: bool = True, kept: int = 10_000) -> None:
        self.topic = topic.encode()
        self.replays = replays
        self.kept = kept
        self.started = 1_790_000_000.25
        self.page = "vllm"
        self.running, self.waiting = 1, 0
        self.replay_requests: list[int] = []
        self.live_endpoint = self.replay_endpoint = ""
        self._context = zmq.asyncio.Context()
        self._live: zmq.asyncio.Socket | None = None
        self._replay: zmq.asyncio.Socket | None = None
        self._answering: asyncio.Task[None] | None = None
        self._metrics: asyncio.Server | None = None
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self._next = 0

    @property
    def metrics_url(self) -> str:
        assert self._metrics is not None
        return f"http://127.0.0.1:{self._metrics.sockets[0].getsockname()[1]}/metrics"

    # ------------------------------------------------------------------ what it does

    async def store(
        self, hashes: Sequence[int], tokens: Sequence[int], parent: int | None = None, **more: Any
    ) -> None:
        """Announce blocks."""
        await self.publish(stored(hashes, tokens, parent, **more))

    async def remove(self, *hashes: int) -> None:
        """Announce that blocks are gone."""
        await self.publish({"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"})

    async def clear(self) -> None:
        """Announce that everything is gone."""
        await self.publish({"type": "AllBlocksCleared"})

    async def publish(self, *events: dict[str, Any], lost: bool = False, burnt: bool = False) -> None:
        """Send one message. A lost one is only to be had by replay, a burnt one was only numbered."""
        number, self._next = self._next, self._next + 1
        if burnt:
            return
        payload = msgspec.msgpack.encode([time.time(), list(events), 0])
        self._buffer.append((number, payload))
        if not lost:
            assert self._live is not None
            await self._live.send_multipart([self.topic, number.to_bytes(8, "big"), payload])

    async def start(self) -> None:
        """Open the sockets, on the ports of before if there were any."""
        self._live = await self._bind(zmq.PUB, self.live_endpoint)
        self.live_endpoint = self._live.getsockopt_string(zmq.LAST_ENDPOINT)
        if self.replays:
            self._replay = await self._bind(zmq.ROUTER, self.replay_endpoint)
            self.replay_endpoint = self._replay.getsockopt_string(zmq.LAST_ENDPOINT)
            self._answering = asyncio.create_task(self._answer(self._replay))

    async def stop(self) -> None:
        """The process dies: its sockets close and its memory is gone."""
        if self._answering is not None:
            self._answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._answering
        for socket in (self._live, self._replay):
            if socket is not None:
                socket.close(linger=0)
        self._live = self._replay = self._answering = None
        self._buffer.clear()
        self._next = 0

    async def restart(self, *, begin_at: int = 0) -> None:
        """Another process in its place."""
        await self.stop()
        self.started += 100.0
        self._next = begin_at
        await self.start()

    # ------------------------------------------------------------------ sockets

    async def _bind(self, kind: int, endpoint: str) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.sndhwm = 0
        deadline = time.monotonic() + 5.0
        while True:
            try:
                socket.bind(endpoint or "tcp://127.0.0.1:*")
            except zmq.ZMQError:
                if time.monotonic() > deadline:
                    raise
                await a_moment()  # the port of the socket before is being given up
            else:
                return socket

    async def _answer(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            asker, _, first = await socket.recv_multipart()
            asked = int.from_bytes(first, "big")
            self.replay_requests.append(asked)
            for number, payload in list(self._buffer):
                if number >= asked:
                    await socket.send_multipart([asker, b"", self.topic, number.to_bytes(8, "big"), payload])
            await socket.send_multipart([asker, b"", b"", END, b""])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = self._page().encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def _page(self) -> str:
        if self.page == "none":
            return ""
        started = f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {self.started!r}\n"
        load = (
            f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {self.running}\n"
            f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting {self.waiting}\n"
        )
        return load if self.page == "load only" else load + started

    async def __aenter__(self) -> Self:
        self._metrics = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._metrics is not None:
            self._metrics.close()
        self._context.destroy(linger=0)


def stored(
    hashes: Sequence[int], tokens: Sequence[int], parent: int | None = None, **more: Any
) -> dict[str, Any]:
    """A store in map form."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        **more,
    }


def numbered_prompts() -> Iterator[tuple[list[int], list[int]]]:
    """Endless prompts of two blocks, hashes and tokens, all different."""
    for number in itertools.count(1):
        yield [2 * number, 2 * number + 1], list(range(8 * number, 8 * number + 8))
