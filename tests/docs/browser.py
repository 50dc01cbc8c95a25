"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse

from tests.support.waiting import eventually
from tools.chromium import browser

_START_LIMIT_S: Final = 60.0
_ANSWER_LIMIT_S: Final = 30.0


class Tab:
    """One page that is open."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited where it is a promise."""
        number = next(self._numbers)
        parameters = {"expression": script, "awaitPromise": True, "returnByValue": True}
        await self._socket.send_json({"id": number, "method": "Runtime.evaluate", "params": parameters})
        async with asyncio.timeout(_ANSWER_LIMIT_S):
            while (answer := await self._socket.receive_json()).get("id") != number:
                pass
        assert "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Tab]:
    """A browser of its own with that page, which may reach nothing but this machine."""
    found = browser()
    assert found is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(str(found.program), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-port=0"),
            *(f"--user-data-dir={profile}", url),
            env=dict(found.environment),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            written = Path(profile) / "DevToolsActivePort"
            await eventually(
                lambda: written.exists() and written.read_text().count("\n") > 0, within_s=_START_LIMIT_S
            )
            port = written.read_text().splitlines()[0]
            async with ClientSession() as http:
                async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (page,) = [tab for tab in await answer.json() if tab["type"] == "page"]
                async with http.ws_connect(page["webSocketDebuggerUrl"]) as socket:
                    yield Tab(socket)
        finally:
            process.kill()
            await process.wait()
