"""The HTTP listener of every process: `/healthz`, `/readyz` and `/metrics`, nothing else.

Written on asyncio streams, because three fixed pages do not justify a web framework in a sidecar. A
peer has 5 s for its request and 5 s to take the answer; each connection serves one request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from inferencecache.core.service.errors import ListenError

REQUEST_LIMIT_S: Final = 5.0
RESPONSE_LIMIT_S: Final = 5.0
STOP_LIMIT_S: Final = 5.0
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_CONNECTIONS: Final = 64
_TEXT: Final = "text/plain; charset=utf-8"


class HttpEndpoints:
    """Serves [WIRE-199]. `address` None means no listener; `ready` is asked at each `/readyz`.

    `setting` is the flag that a failure to listen names; with `tls` they are served by HTTPS.
    """

    def __init__(
        self,
        address: tuple[str, int] | None,
        ready: Callable[[], bool],
        registry: CollectorRegistry,
        *,
        setting: str = "--http-bind-address",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = address
        self._ready = ready
        self._registry = registry
        self._setting = setting
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that is served, also when the system chose it; 0 without a listener."""
        if self._server is None:
            return 0
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen. Raises ListenError when the address cannot be had."""
        if self._address is None:
            return
        host, port = self._address
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, limit=MAX_HEADER_BYTES, ssl=self._tls
            )
        except OSError as error:
            raise ListenError(self._setting, host, port, error.strerror or str(error)) from error

    async def stop(self) -> None:
        """Accept no more, give running requests 5 s [WIRE-202]."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=STOP_LIMIT_S)
            for task in late:
                task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer(head))
            async with asyncio.timeout(RESPONSE_LIMIT_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The peer is slow, gone or no HTTP client: nobody is left to answer.
            pass
        finally:
            writer.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        request_line, _, header_lines = head.decode("latin-1").partition("\r\n")
        method, _, target = request_line.partition(" ")
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n", method)
        match target.partition(" ")[0].partition("?")[0]:
            case "/healthz":
                return _response(HTTPStatus.OK, _TEXT, b"ok\n", method)
            case "/readyz" if self._ready():
                return _response(HTTPStatus.OK, _TEXT, b"ok\n", method)
            case "/readyz":
                return _response(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"not ready\n", method)
            case "/metrics":
                encode, content_type = choose_encoder(_header(header_lines, "accept"))
                return _response(HTTPStatus.OK, content_type, encode(self._registry), method)
            case _:
                return _response(HTTPStatus.NOT_FOUND, _TEXT, b"not found\n", method)


def _header(lines: str, name: str) -> str:
    values = (line.partition(":") for line in lines.split("\r\n"))
    return ",".join(value.strip() for key, _, value in values if key.strip().lower() == name)


def _response(status: HTTPStatus, content_type: str, body: bytes, method: str) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)
