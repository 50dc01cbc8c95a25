"""An address in front of a server, whose connections can go silent without being closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

_PIECE: Final = 1 << 16


class Relay:
    """Carries bytes between its port on loopback and the server's."""

    def __init__(self) -> None:
        self.port = 0
        self.unanswered = 0
        """Connections that were made while it was silent."""
        self._carrying = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._carrying.set()

    def go_silent(self) -> None:
        """From now on nothing is carried; what is connected stays so and is never heard of again."""
        self._carrying.clear()
        self._carrying = asyncio.Event()

    def resume(self) -> None:
        """Carry what connections bring that are made from now on."""
        self._carrying.set()

    @asynccontextmanager
    async def run(self, port: int) -> AsyncIterator[Relay]:
        """In front of the server of that port."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with suppress(OSError, asyncio.CancelledError):  # else the server tells of its own end
                await self._serve(port, reader, writer)
            self._tasks.discard(task)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrying = self._carrying
        try:
            if not carrying.is_set():
                self.unanswered += 1
                await asyncio.Event().wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                ways = ((reader, far_writer), (far_reader, writer))
                tasks = [asyncio.ensure_future(_carry(*way, carrying)) for way in ways]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                far_writer.close()
        finally:
            writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, carrying: asyncio.Event) -> None:
    while piece := await reader.read(_PIECE):
        await carrying.wait()
        writer.write(piece)
        await writer.drain()
