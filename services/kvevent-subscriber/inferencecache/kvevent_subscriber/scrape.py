"""Fetching the engine's metrics page: one GET with a limit on time and size, off the event loop."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final, NamedTuple

MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_ACCEPT: Final = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5"

# An engine is reached directly: a proxy meant for the outside world would not find it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ScrapeError(Exception):
    """There is no page; `reason` says why, without quoting content."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Fetched(NamedTuple):
    """A page and the content type it came with."""

    text: str
    content_type: str


async def fetch(url: str, timeout_s: float = 5.0) -> Fetched:
    """Get a page within `timeout_s` in all. Raises `ScrapeError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(_get, url, timeout_s)
    except TimeoutError:
        raise ScrapeError(f"no answer within {timeout_s:g} s") from None


def _get(url: str, timeout_s: float) -> Fetched:
    deadline = time.monotonic() + timeout_s
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT})  # noqa: S310 - settings admit http(s) only
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            if response.status != 200:
                raise ScrapeError(f"status {response.status}")
            body = bytearray()
            while chunk := response.read1(_CHUNK):
                body += chunk
                if len(body) > MAX_PAGE_BYTES:
                    raise ScrapeError(f"the page is larger than {MAX_PAGE_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise ScrapeError(f"no end within {timeout_s:g} s")
            content_type = response.headers.get("Content-Type", "")
    except urllib.error.HTTPError as error:
        with error:
            raise ScrapeError(f"status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise ScrapeError(f"{type(error).__name__}: {error}") from None
    return Fetched(body.decode("utf-8", "replace"), content_type)
