"""Inference engines: a cache, its publisher's numbers, and sockets that lose what nobody was there to hear.

Only what the sidecar sees of an engine is modelled: messages in the engine's own form, connections that
come and go, a replay socket with a bounded memory, and a metrics page that names the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from inferencecache.core.fingerprint import prefix_hashes
from inferencecache.kvevent_subscriber.scrape import Fetched, ScrapeError
from inferencecache.simengine.cache import Stored
from inferencecache.simengine.events import AllCleared, BlocksRemoved, BlocksStored, Event
from inferencecache.simengine.vllm_form import VllmForm
from tests.simulation.loop import PROCESS, SimulatedLoop
from tests.simulation.noise import Noise

BLOCK_SIZE = 4
_END_OF_REPLAY = b"\xff" * 8
_RECONNECT_S = 1.0
_FORM = VllmForm(BLOCK_SIZE)

Parts = list[bytes]


def _tokens(prompt: int, blocks: int) -> tuple[int, ...]:
    return tuple(1000 * prompt + at for at in range(BLOCK_SIZE * blocks))


def _hashes(prompt: int, blocks: int) -> tuple[bytes, ...]:
    """What the engine calls its blocks: hashes of its own kind."""
    return tuple(sha256(f"{prompt}/{block}".encode()).digest() for block in range(blocks))


class Engine:
    """One engine process after the other at one address. `replays` is how many messages it keeps."""

    def __init__(self, loop: SimulatedLoop, address: str, seed: str, replays: int) -> None:
        self.address = address
        self.up = True
        self.replays = replays
        self.lose_next = 0
        """So many messages will not reach the sockets that are connected."""
        self._loop = loop
        self._noise = Noise(seed)
        self._sockets: list[EngineSocket] = []
        self._begin()

    def _begin(self) -> None:
        self.started_at = self._loop.time()
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=self.replays or 1)
        self._prompts: dict[int, int] = {}

    @property
    def cache(self) -> set[int]:
        """The index keys of all that is cached."""
        return {
            key
            for prompt, blocks in self._prompts.items()
            for key in prefix_hashes(_tokens(prompt, blocks), BLOCK_SIZE)
        }

    # -- what happens in it --------------------------------------------------------------------------

    def store(self, prompt: int, blocks: int) -> None:
        """A request computed the first blocks of a prompt."""
        had = self._prompts.get(prompt, 0)
        if self.up and blocks > had:
            self._prompts[prompt] = blocks
            hashes = _hashes(prompt, blocks)
            parent = hashes[had - 1] if had else None
            tokens = _tokens(prompt, blocks)[had * BLOCK_SIZE :]
            self._tell(BlocksStored(Stored(hashes[had:], parent, tokens)))

    def evict(self, chance: int) -> None:
        """The last block of some prompt makes room."""
        if self.up and self._prompts:
            prompt = sorted(self._prompts)[chance % len(self._prompts)]
            blocks = self._prompts.pop(prompt)
            if blocks > 1:
                self._prompts[prompt] = blocks - 1
            self._tell(BlocksRemoved(_hashes(prompt, blocks)[-1:]))

    def clear(self) -> None:
        if self.up:
            self._prompts.clear()
            self._tell(AllCleared())

    def stop(self) -> None:
        """The process is gone, with its cache."""
        if self.up:
            self.up = False
            self._prompts.clear()
            for socket in self._sockets:
                socket.lost()

    def start(self, number: int = 0) -> None:
        """The next process at the same address; its messages are counted from `number`."""
        if not self.up:
            self.up = True
            self._begin()
            self._number = number
            for socket in self._sockets:
                socket.connect()

    def page(self) -> Fetched:
        """The metrics page. Raises ScrapeError."""
        if not self.up:
            raise ScrapeError("nobody listens")
        lines = (
            f"process_start_time_seconds {self.started_at!r}",
            f"vllm:num_requests_running {len(self._prompts)}",
            "vllm:num_requests_waiting 0",
            "vllm:gpu_cache_usage_perc 0.5",
        )
        return Fetched("\n".join(lines) + "\n", "text/plain")

    def _tell(self, event: Event) -> None:
        payload = _FORM.payload([event], self._loop.time())
        self._kept.append((self._number, payload))
        parts = [b"", self._number.to_bytes(8, "big"), payload]
        self._number += 1
        if self.lose_next:
            self.lose_next -= 1
            return
        for socket in self._sockets:
            socket.hear(parts)

    # -- its sockets ---------------------------------------------------------------------------------

    def attach(self, socket: EngineSocket) -> None:
        self._sockets.append(socket)
        if self.up:
            socket.connect()

    def detach(self, socket: EngineSocket) -> None:
        if socket in self._sockets:
            self._sockets.remove(socket)

    def kept_from(self, first: int) -> list[Parts]:
        """What its replay socket answers."""
        if not self.up or not self.replays:
            return []
        replies = [
            [b"", number.to_bytes(8, "big"), payload] for number, payload in self._kept if number >= first
        ]
        return [*replies, [b"", _END_OF_REPLAY, b""]]

    def delay(self) -> float:
        """On the way to a sidecar."""
        chance = self.chance()
        return 0.0002 + (0.002 * chance if chance < 0.9 else 2.0 * (chance - 0.9))

    def chance(self) -> float:
        return self._noise.at(self._loop.time())


class Engines:
    """All engines by address; a process finds its own through this."""

    def __init__(self) -> None:
        self.by_address: dict[str, Engine] = {}

    def _at(self, url: str) -> Engine:
        return self.by_address[url.split("/")[2].partition(":")[0]]

    async def fetch(self, url: str, timeout_s: float = 5.0) -> Fetched:
        """Stands for `scrape.fetch`."""
        engine = self._at(url)
        await asyncio.sleep(engine.delay())
        return engine.page()

    def socket(self, context: Any, endpoint: str, topic: str, **callbacks: Any) -> EngineSocket:
        """Stands for `sockets.LiveSocket`."""
        return EngineSocket(self._at(endpoint), **callbacks)

    async def replay(
        self, context: Any, endpoint: str, first: int, on_reply: Callable[[Parts], None]
    ) -> None:
        """Stands for `sockets.replay`."""
        engine = self._at(endpoint)
        await asyncio.sleep(engine.delay())
        for parts in engine.kept_from(first):
            on_reply(parts)
            if engine.delay() > 0.002:
                await asyncio.sleep(engine.delay())
        await asyncio.Event().wait()


class EngineSocket:
    """One sidecar's subscription to one engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        on_message: Callable[[Parts], None],
        on_connected: Callable[[], None],
        on_disconnected: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._process = PROCESS.get()
        self._loop = engine._loop
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._connection = 0
        self._connected = False
        self._at = 0.0

    async def run(self) -> None:
        self._engine.attach(self)
        try:
            await asyncio.Event().wait()
        finally:
            self._engine.detach(self)

    def connect(self) -> None:
        """The engine is there: the next attempt succeeds."""
        self._connection += 1
        life = self._connection
        at = self._loop.time() + _RECONNECT_S * self._engine.chance()
        self._loop.call_in(self._process, at, self._connect, life)

    def _connect(self, life: int) -> None:
        if life == self._connection and self._engine.up:
            self._connected = True
            self._on_connected()

    def hear(self, parts: Parts) -> None:
        if self._connected:
            self._later(self._on_message, parts)

    def lost(self) -> None:
        self._connection += 1
        if self._connected:
            self._connected = False
            self._later(self._on_disconnected)

    def _later(self, callback: Callable[..., None], *arguments: Any) -> None:
        """In order, a moment from now."""
        self._at = max(self._at, self._loop.time() + self._engine.delay())
        self._loop.call_in(self._process, self._at, callback, *arguments)
