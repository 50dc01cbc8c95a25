"""The NATS client library as `core.log` uses it, over a simulated connection.

Both directions of a connection keep their order, whatever the delays: like TCP. What a process sent before
it died still arrives. A connection that breaks loses what is on its way to the client; what the client
sent may have arrived.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nats.errors import ConnectionClosedError

from tests.simulation.loop import PROCESS, Process, SimulatedLoop
from tests.simulation.noise import Noise
from tests.simulation.server import Interest, Server, WireMessage

RECONNECT_S = 0.1


class Link:
    """What lies between one process and the server."""

    def __init__(self, loop: SimulatedLoop, seed: str) -> None:
        self._loop = loop
        self._noise = Noise(seed)
        self.stalled_until = 0.0
        """Nothing arrives before, in either direction."""
        self.mute_until = 0.0
        """Until then acknowledgements of what was stored vanish."""

    def delay(self) -> float:
        """Most often a few milliseconds, now and then far more."""
        chance = self._noise.at(self._loop.time())
        if chance < 0.9:
            return 0.0002 + 0.003 * chance
        return 0.5 * (chance - 0.9) if chance < 0.995 else 80.0 * (chance - 0.995)


class SimulatedSubscription:
    def __init__(
        self, client: SimulatedClient, subject: str, callback: Callable[[Any], Awaitable[None]]
    ) -> None:
        self.subject = subject
        self.callback = callback
        self.pending_msgs = 0
        self.active = True
        self._client = client

    async def unsubscribe(self) -> None:
        if self._client.is_closed:
            raise ConnectionClosedError
        self.active = False
        self._client.unsubscribed(self)


class Connection:
    """One connection's life, seen from both ends."""

    def __init__(self, loop: SimulatedLoop, server: Server, client: SimulatedClient, link: Link) -> None:
        self._loop = loop
        self._server = server
        self._client = client
        self._link = link
        self._process = client.process
        self._up_at = self._down_at = 0.0
        self._arriving: deque[tuple[float, SimulatedSubscription, WireMessage]] = deque()
        self._timed_at = -1.0
        self.is_open = True

    def up(self, arrive: Callable[..., None], *arguments: Any) -> None:
        """Something is sent to the server; it arrives even if the sender is dead by then."""
        self._up_at = self._due(self._up_at)
        self._loop.call_in(None, self._up_at, self._arrived, self._server.life, arrive, arguments)

    def _arrived(self, life: int, arrive: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        server = self._server
        if not server.up or server.life != life:
            return
        if server.loop.time() < self._link.stalled_until:
            self._up_at = self._due(self._up_at)
            self._loop.call_in(None, self._up_at, self._arrived, life, arrive, arguments)
            return
        arrive(*arguments)

    def down(self, subscription: SimulatedSubscription, message: WireMessage) -> None:
        """The server sends something to the client."""
        if not self.is_open:
            return
        if self._loop.time() < self._link.mute_until and message.data.startswith(b'{"stream"'):
            return
        self._down_at = self._due(self._down_at)
        self._arriving.append((self._down_at, subscription, message))
        if len(self._arriving) == 1:
            self._loop.call_in(self._process, self._down_at, self._deliver)

    def _deliver(self) -> None:
        """Hand over what has arrived: as many messages as are there."""
        if not self.is_open or not self._arriving:
            return
        now = self._loop.time()
        if now < self._link.stalled_until:
            self._loop.call_in(self._process, self._link.stalled_until, self._deliver)
            return
        burst: list[tuple[SimulatedSubscription, WireMessage]] = []
        while self._arriving and self._arriving[0][0] <= now:
            _, subscription, message = self._arriving.popleft()
            subscription.pending_msgs += 1
            burst.append((subscription, message))
        if self._arriving:
            self._loop.call_in(self._process, self._arriving[0][0], self._deliver)
        for subscription, message in burst:
            subscription.pending_msgs -= 1
            if subscription.active:
                _run(subscription.callback(message))

    @property
    def process(self) -> Process:
        return self._process

    def end(self) -> None:
        """The client's process has ended: the server hears of it behind whatever that has sent."""
        self.up(self._client._hang_up, self)

    def broken(self) -> None:
        """The connection is gone; the client notices a moment later."""
        if self.is_open:
            self.is_open = False
            self._server.disconnected(self)
            self._arriving.clear()
            self._loop.call_in(
                self._process, self._loop.time() + self._link.delay(), self._client.lost_connection, self
            )

    def _due(self, after: float) -> float:
        return max(after, self._loop.time() + self._link.delay(), self._link.stalled_until)


class SimulatedClient:
    """Stands for `nats.aio.client.Client`. `world` gives each process's server and link."""

    find: Callable[[Process], tuple[SimulatedLoop, Server, Link]]

    def __init__(self) -> None:
        process = PROCESS.get()
        if process is None:
            raise RuntimeError("a client belongs to a process")
        self.process = process
        self._loop, self._server, self._link = type(self).find(process)
        self._options: dict[str, Any] = {}
        self._subscriptions: list[SimulatedSubscription] = []
        self._connection: Connection | None = None
        self.is_closed = False
        self.max_payload = 8 * 1024 * 1024

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def connect(self, **options: Any) -> None:
        self._options = options
        while not await self._try():
            await asyncio.sleep(RECONNECT_S)

    async def _try(self) -> bool:
        await asyncio.sleep(2 * self._link.delay() + max(0.0, self._link.stalled_until - self._loop.time()))
        if not self._server.up or self.is_closed:
            return False
        self._connection = Connection(self._loop, self._server, self, self._link)
        self._server.connections.append(self._connection)
        for subscription in self._subscriptions:
            self._announce(subscription)
        return True

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        if self._connection is None:
            raise ConnectionClosedError
        self._connection.up(self._server.published, subject, payload, reply, headers or {})

    async def subscribe(
        self, subject: str, queue: str = "", cb: Any = None, **limits: Any
    ) -> SimulatedSubscription:
        subscription = SimulatedSubscription(self, subject, cb)
        self._subscriptions.append(subscription)
        self._announce(subscription)
        return subscription

    def _announce(self, subscription: SimulatedSubscription) -> None:
        connection = self._connection
        if connection is not None:
            connection.up(
                lambda: (
                    self._server.subscribed(Interest(connection, subscription))
                    if connection.is_open
                    else None
                )
            )

    def unsubscribed(self, subscription: SimulatedSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        if self._connection is not None:
            self._connection.up(self._server.unsubscribed, Interest(self._connection, subscription))

    async def close(self) -> None:
        self.is_closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.up(self._hang_up, connection)

    def _hang_up(self, connection: Connection) -> None:
        connection.is_open = False
        self._server.disconnected(connection)
        if connection in self._server.connections:
            self._server.connections.remove(connection)

    def lost_connection(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._loop.create_task(self._come_back())

    async def _come_back(self) -> None:
        await self._options["disconnected_cb"]()
        while not self.is_closed:
            if await self._try():
                await self._options["reconnected_cb"]()
                return
            await asyncio.sleep(RECONNECT_S)


def _run(work: Any) -> None:
    """Carry out a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("a callback of the client must not wait")
