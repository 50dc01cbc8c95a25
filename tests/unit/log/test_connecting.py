"""Connecting can be cancelled at any moment."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from inferencecache.core.log import Log, NotConnectedError
from inferencecache.core.service import NatsSettings
from tests.support.certificates import DATA
from tests.support.waiting import a_turn, eventually


class Deaf:
    """A client that connects although it is cancelled, as one that waits by `asyncio.wait_for` may."""

    max_payload = 1 << 20
    is_closed = False

    def __init__(self) -> None:
        CLIENTS.append(self)
        self.began = asyncio.Event()
        self.closed = False

    async def connect(self, **_: Any) -> None:
        try:
            self.began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async def close(self) -> None:
        self.closed = True


CLIENTS: list[Deaf] = []


async def test_a_cancellation_that_comes_with_the_connection_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferencecache.core.log.connection.Client", Deaf)
    CLIENTS.clear()
    connecting = asyncio.create_task(
        Log.connect(NatsSettings("nats://127.0.0.1:4222", insecure=True), name="x")
    )
    await a_turn()
    client = CLIENTS[-1]
    await client.began.wait()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await connecting
    assert client.closed


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("", "--nats-url"),
        ("Connect call failed", "--nats-url"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "--nats-tls-ca-file"),
        ("nats: 'Authorization Violation'", "--nats-creds-file"),
    ],
)
def test_what_stops_a_connection_names_the_setting_to_look_at(reason: str, setting: str) -> None:
    text = str(NotConnectedError("nats://nats:4222", reason))
    assert setting in text.partition("; check ")[2]


async def test_a_connection_that_is_given_up_halfway_leaves_no_socket() -> None:
    """The server accepts, and says nothing. The client misses the first cancellation."""
    accepted, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = NatsSettings(f"nats://127.0.0.1:{port}", insecure=True)
        connecting = asyncio.create_task(Log.connect(settings, name="x"))
        async with asyncio.timeout(10):
            await accepted.wait()
            connecting.cancel()
            await asyncio.wait([connecting])
            assert connecting.cancelled()
            await ended.wait()


class Greeting:
    """A server that greets as `whole` says: wholly, or by hanging up before the first word is out.

    It hangs up with half of the connection, as a server does that is stopped while clients come.
    """

    def __init__(self, *whole: bool) -> None:
        self._whole = iter(whole)
        self.open = 0
        self.heard = b""
        self.settled = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            whole = next(self._whole)
        except StopIteration:
            whole = True
            self.settled.set()
        if whole:
            writer.write(b'INFO {"max_payload":1048576,"headers":true}\r\n')
            while (line := await reader.readline()) and not line.startswith(b"PING"):
                self.heard += line
            writer.write(b"PONG\r\n")
        if not self.settled.is_set():
            writer.write_eof()
        await reader.read()
        self.open -= 1
        writer.close()


@pytest.mark.parametrize("whole", [(False, False), (True, False, False)], ids=["connecting", "reconnecting"])
async def test_connections_whose_greeting_broke_off_are_closed(whole: tuple[bool, ...]) -> None:
    """Not at some time by the garbage collector: it may find them when their loop is gone."""
    greeting = Greeting(*whole)
    async with await asyncio.start_server(greeting.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        gc.disable()
        try:
            async with asyncio.timeout(20):
                log = await Log.connect(NatsSettings(f"nats://127.0.0.1:{port}", insecure=True), name="x")
                await greeting.settled.wait()
                await eventually(lambda: log.connected and greeting.open == 1)
                await log.close()
                await eventually(lambda: greeting.open == 0)
        finally:
            gc.enable()


@pytest.mark.parametrize("asks", ["tls://", "--nats-tls-ca-file"])
async def test_a_server_without_tls_hears_nothing_where_tls_is_asked_for(asks: str) -> None:
    """Else whoever stands in between had the credentials."""
    ca = str(DATA / "first.crt") if asks.startswith("--") else ""
    greeting = Greeting(True)
    greeting.settled.set()
    async with await asyncio.start_server(greeting.serve, "127.0.0.1", 0) as server:
        scheme = "nats" if ca else "tls"
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = NatsSettings(url, user="indexer", password="secret", tls_ca_file=ca)
        with pytest.raises(NotConnectedError, match="no TLS"):
            await Log.connect(settings, name="x", timeout_s=1)
        await eventually(lambda: greeting.open == 0)
    assert greeting.heard == b""


async def test_a_connection_whose_first_subscription_is_given_up_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    greeting = Greeting(True, True)
    subscribing = asyncio.Event()

    async def stuck(*_: object, **__: object) -> None:
        subscribing.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Log, "subscribe", stuck)
    greeting.settled.set()
    async with await asyncio.start_server(greeting.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = NatsSettings(f"nats://127.0.0.1:{port}", insecure=True)
        connecting = asyncio.create_task(Log.connect(settings, name="x"))
        async with asyncio.timeout(10):
            await subscribing.wait()
            connecting.cancel()
            await asyncio.wait([connecting])
            await eventually(lambda: greeting.open == 0)
