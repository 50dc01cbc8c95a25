"""Requests to the Kubernetes API. Nothing is cached."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import aiohttp

from inferencecache.core.kube.access import ClusterAccess

CONNECT_LIMIT_S: Final = 5.0


class UnreachableError(Exception):
    """The API gave no answer; the message says why."""


class Cluster:
    """The API over one session of HTTP connections, which `async with` closes."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.tls or False))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        form: str = "application/json",
        query: Mapping[str, str] | None = None,
        limit_s: float,
    ) -> tuple[int, bytes]:
        """Status and content of any answer. Raises `UnreachableError`."""
        try:
            async with self._session.request(
                method,
                self._access.server + path,
                data=body,
                params=query,
                # Packing long lists costs the API server more than sending them as they are.
                headers={**self._access.headers, "Content-Type": form, "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=limit_s),
            ) as response:
                return response.status, await response.read()
        except TimeoutError:
            raise UnreachableError(f"no answer within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # the last: a token that is no text
            raise UnreachableError(str(error) or type(error).__name__) from error

    async def lines(self, path: str, query: Mapping[str, str], *, silence_s: float) -> AsyncIterator[bytes]:
        """An answer's lines as they come, until it ends or is silent for so long.

        Raises `UnreachableError`, also for a refusal.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_LIMIT_S, sock_read=silence_s)
        try:
            async with self._session.get(
                self._access.server + path,
                params=query,
                headers={**self._access.headers, "Accept-Encoding": "identity"},
                timeout=timeout,
            ) as response:
                if response.status != HTTPStatus.OK:
                    raise UnreachableError(f"the API answers {response.status}")
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line
        except TimeoutError:
            raise UnreachableError(f"silent for {silence_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
