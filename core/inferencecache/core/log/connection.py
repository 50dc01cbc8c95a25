"""One connection to NATS for a whole process, that comes back by itself for as long as the process lives.

The client library reconnects after a lost connection, but gives up for good when the server sends an
error it does not know (a refused login while connected, too many connections). `Log` then starts a
fresh client in its place, so that subscriptions, questions in flight and readers built on it never
notice more than a reconnect.

Callbacks of the client only set events here: one that raises would end its read loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from nats.aio.client import Client as NatsClient
from nats.aio.client import RawCredentials, Srv
from nats.aio.subscription import Subscription as ClientSubscription
from nats.errors import Error as NatsError
from nats.nuid import NUID

from inferencecache.core.log.inbox import Inbox, Message
from inferencecache.core.log.publisher import HEADERS_ROOM, Publisher
from inferencecache.core.service import NatsSettings, ended, get_logger

RECONNECT_WAIT_S: Final = 0.1
PING_INTERVAL_S: Final = 2
MAX_OUTSTANDING_PINGS: Final = 2
CONNECT_TIMEOUT_S: Final = 5
_REVIVE_WAIT_S: Final = 1.0
_FLUSH_LIMIT_S: Final = 10.0
_CLOSE_LIMIT_S: Final = 2.0
_NKEY_SEED: Final = re.compile(r"SU[A-Z2-7]{56}")
"""Of a user, as servers know it that list public keys instead of trusting an operator's signature."""

logger = get_logger("log")

Callback = Callable[[Message], None]


_SETTINGS_BY_REASON: Final = {
    "certificate": "--nats-tls-ca-file, and --nats-tls-cert-file where the server asks for one",
    "authorization": "the credentials: --nats-creds-file, --nats-nkey-seed-file, --nats-token or --nats-user",
}
"""What to look at first, by words of the client's reason."""


class NotConnectedError(Exception):
    """There was no connection within the time given; `reason` is what the last attempt said."""

    def __init__(self, address: str, reason: str) -> None:
        wrong = reason.lower()
        setting = next((each for part, each in _SETTINGS_BY_REASON.items() if part in wrong), "--nats-url")
        super().__init__(f"no connection to NATS at {address}: {reason or 'no answer'}; check {setting}")
        self.address = address
        self.reason = reason


class UnusableCredentialsError(Exception):
    """The client could not answer the server with the credentials it was given; nothing of them is told."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(
            f"the NATS credentials cannot be used ({type(cause).__name__}); check NATS_CREDS, "
            "--nats-creds-file and --nats-nkey-seed-file"
        )


class NoTlsError(NatsError):
    """TLS was asked for, and the server, or who stands in its place, offers none."""

    def __init__(self) -> None:
        super().__init__("the server offers no TLS, which tls:// and --nats-tls-ca-file ask for")


class Client(NatsClient):
    """The library's client, which is stricter in two things.

    It closes a connection whose greeting broke off before it opens the next: the library forgets it, so
    that its socket would stay open until the garbage collector comes. And where TLS is asked for it says
    nothing to a server without TLS, be that one in the middle: the library leaves it to the server.
    """

    async def _connect_to_server(self, s: Srv) -> None:
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call] # the library's
        await super()._connect_to_server(s)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self._asks_for_tls() and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise NoTlsError
            info["tls_required"] = True  # what the library goes by, a moment later
        await super()._process_info(info, initial_connection)

    def _asks_for_tls(self) -> bool:
        scheme = self._current_server.uri.scheme if self._current_server is not None else ""
        # A WebSocket's TLS is below the protocol, which knows nothing of it.
        return scheme == "tls" or (scheme == "nats" and "tls" in self.options)


class Subscription:
    """A core NATS subscription that outlives reconnects and clients. `cancel` ends it."""

    def __init__(self, log: Log, subject: str, callback: Callback, queue: str) -> None:
        self.subject = subject
        self._log = log
        self._callback = callback
        self._queue = queue
        self._current: ClientSubscription | None = None

    @property
    def waiting(self) -> int:
        """Messages that have arrived and not yet gone through the callback."""
        return self._current.pending_msgs if self._current is not None else 0

    async def cancel(self) -> None:
        """End the subscription; nothing is delivered afterwards."""
        self._log._forget(self)  # noqa: SLF001 - the two classes are one thing seen from two sides
        current, self._current = self._current, None
        if current is not None:
            with contextlib.suppress(NatsError):  # a closed client has ended its subscriptions itself
                await current.unsubscribe()

    async def _open(self, client: Client) -> None:
        self._current = await client.subscribe(
            self.subject, queue=self._queue, cb=self._deliver, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def _deliver(self, message: Message) -> None:
        try:
            self._callback(message)
        except Exception:
            # The client would swallow it; a message that breaks its receiver must not end the subscription.
            logger.exception("subscription_failed", subject=self.subject)


class Log:
    """The connection, shared by every reader, bucket and publisher of a process.

    `connect` makes one that is connected. One that is made directly connects with `start`; until then
    nothing that is asked of it is answered.

    `name` is what the server's monitoring shows. Its first word is the role, and answers come to subjects
    below `_INBOX.<role>`, so that permissions can keep the roles from reading each other's answers.
    """

    def __init__(self, settings: NatsSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: Client = Client()
        self._up = asyncio.Event()
        self._changed = asyncio.Event()
        self._came_back = False
        self._closing = False
        self._subscriptions: list[Subscription] = []
        self._listeners: list[Callable[[], None]] = []
        self._supervisor: asyncio.Task[None] | None = None
        self._last_error = ""
        self._inbox = Inbox(self.new_inbox(), self.send)
        self.publisher = Publisher(self._inbox)

    @classmethod
    async def connect(cls, settings: NatsSettings, *, name: str, timeout_s: float | None = None) -> Self:
        """Connect, by default however long it takes.

        Raises NotConnectedError after `timeout_s`.
        """
        log = cls(settings, name)
        try:
            async with asyncio.timeout(timeout_s):
                await log.start()
        except TimeoutError:
            await log.close()
            raise NotConnectedError(settings.address, log.last_error) from None
        return log

    async def start(self) -> None:
        """Connect, however long it takes."""
        await self._open_client()
        try:
            await self.subscribe(self._inbox.subject, self._inbox.answered)
        except BaseException:
            await _end(self._client)
            raise
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    @property
    def connected(self) -> bool:
        """Is there a connection right now?"""
        return self._client.is_connected

    @property
    def last_error(self) -> str:
        """What the server or the last attempt to reach it said; empty while all is well."""
        return self._last_error

    @property
    def address(self) -> str:
        """The servers' addresses without secrets."""
        return self._settings.address

    def new_inbox(self) -> str:
        """A subject for answers to this connection alone."""
        return f"_INBOX.{self._name.partition(' ')[0]}.{NUID().next().decode()}"

    def on_connected(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every reconnect. Returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_connected(self) -> None:
        """Return as soon as there is a connection."""
        await self._up.wait()

    async def subscribe(self, subject: str, callback: Callback, *, queue: str = "") -> Subscription:
        """Call `callback` for every message of a core NATS subject, in order; any number may wait."""
        subscription = Subscription(self, subject, callback, queue)
        self._subscriptions.append(subscription)
        if not self._client.is_closed:
            await subscription._open(self._client)  # noqa: SLF001 - see Subscription.cancel
        return subscription

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> bool:
        """Put a message on the wire, with no promise that it arrives; False when it was not even sent."""
        if not self.connected:
            return False
        try:
            await self._client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )
        except NatsError as error:
            self._note_error(error)
            return False
        return True

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float, patient: bool = False
    ) -> Message:
        """The first answer to a question that may be asked twice. Raises NoAnswerError.

        A patient one waits, within the time, for somebody to serve the subject.
        """
        return await self._inbox.ask(subject, payload, timeout_s=timeout_s, patient=patient)

    async def close(self) -> None:
        """Close the connection; whatever is in flight fails."""
        self._closing = True
        if self._supervisor is not None:
            self._supervisor.cancel()
        self._inbox.close()
        self._up.clear()
        if self._supervisor is None:
            return  # never connected
        await _end(self._client)

    async def _open_client(self) -> None:
        while True:
            client = Client()
            connecting = asyncio.create_task(client.connect(**self._options()))
            try:
                await asyncio.wait([connecting])
                await connecting
            except asyncio.CancelledError:
                await ended(connecting)
                await _end(client)
                raise
            except (OSError, NatsError, TimeoutError) as error:
                self._note_error(error)
                await _end(client)
                await asyncio.sleep(_REVIVE_WAIT_S)
                continue
            except Exception as error:  # noqa: BLE001 - see below
                # Signing with credentials that are none fails in as many ways as there are libraries for it.
                self._note_error(UnusableCredentialsError(error))
                await _end(client)
                await asyncio.sleep(_REVIVE_WAIT_S)
                continue
            self._client = client
            self._connected()
            return

    def _connected(self) -> None:
        self._last_error = ""
        self.publisher.payload_limit = self._client.max_payload - HEADERS_ROOM
        self._up.set()

    async def _supervise(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._client.is_closed:
                    await self._replace_client()
                if self._came_back and self._client.is_connected:
                    await self._resume()
            except (OSError, NatsError) as error:
                self._note_error(error)
                self._changed.set()
                await asyncio.sleep(_REVIVE_WAIT_S)

    async def _replace_client(self) -> None:
        logger.warning("nats_client_replaced", address=self.address, reason=self._last_error)
        await self._open_client()
        for subscription in list(self._subscriptions):
            await subscription._open(self._client)  # noqa: SLF001 - see Subscription.cancel
        self._came_back = True

    async def _resume(self) -> None:
        self._came_back = False
        self._connected()
        logger.info("nats_reconnected", address=self.address)
        await self._inbox.ask_again()
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:
                # The other listeners have to hear of it all the same.
                logger.exception("reconnect_listener_failed")

    def _forget(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _note_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text != self._last_error:
            self._last_error = text
            logger.info("nats_error", address=self.address, error=text)

    async def _on_error(self, error: Exception) -> None:
        self._note_error(error)

    async def _on_disconnected(self) -> None:
        self._up.clear()
        self._inbox.connection_lost()

    async def _on_reconnected(self) -> None:
        self._came_back = True
        self._changed.set()

    async def _on_closed(self) -> None:
        if not self._closing:
            self._up.clear()
            self._inbox.connection_lost()
            self._changed.set()

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {
            "servers": settings.servers,
            "name": self._name,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnected,
            "reconnected_cb": self._on_reconnected,
            "closed_cb": self._on_closed,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_WAIT_S,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": MAX_OUTSTANDING_PINGS,
            "flush_timeout": _FLUSH_LIMIT_S,
        }
        if settings.user:
            options |= {"user": settings.user, "password": settings.password}
        if settings.token:
            options["token"] = settings.token
        if settings.creds_file:
            options["user_credentials"] = settings.creds_file
        elif _NKEY_SEED.fullmatch(settings.creds_text.strip()):
            options["nkeys_seed_str"] = settings.creds_text.strip()
        elif settings.creds_text:
            options["user_credentials"] = RawCredentials(settings.creds_text)
        if settings.nkey_seed_file:
            options["nkeys_seed"] = settings.nkey_seed_file
        context = _tls(settings)
        if context is not None:
            options["tls"] = context
        return options


async def _end(client: Client) -> None:
    """Close it; nobody waits for a peer that is gone."""
    with contextlib.suppress(TimeoutError, OSError, NatsError):
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await client.close()


def _tls(settings: NatsSettings) -> ssl.SSLContext | None:
    if not (settings.tls_ca_file or settings.tls_cert_file):
        return None
    context = ssl.create_default_context(cafile=settings.tls_ca_file or None)
    if settings.tls_cert_file:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
    return context
