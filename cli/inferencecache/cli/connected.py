"""Running what a command does over one connection to NATS, and saying what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import typer

from inferencecache.core.log import ApiError, Log, NoAnswerError, NotConnectedError, NotStoredError
from inferencecache.core.log.assets import LayoutUnusableError
from inferencecache.core.log.subjects import InvalidIdError
from inferencecache.core.service import NatsSettings, configure_logging

CONNECT_S: Final = 5.0


class CommandError(Exception):
    """The command cannot be carried out; the message says why and what to do."""


_FAILURES: Final = (
    ApiError,
    CommandError,
    InvalidIdError,
    LayoutUnusableError,
    NoAnswerError,
    NotConnectedError,
    NotStoredError,
)


def over_nats(
    nats: NatsSettings, command: str, work: Callable[[Log], Awaitable[int]], *, connect_s: float = CONNECT_S
) -> int:
    """The exit code of `work`, or 1 with a line for each thing that is wrong.

    `command` is as it is typed, as in `layout set`.
    """

    async def connected() -> int:
        log = await Log.connect(nats, name=f"inferencecache {command}", timeout_s=connect_s)
        try:
            return await work(log)
        finally:
            await log.close()

    configure_logging("text", "error")
    try:
        return asyncio.run(connected())
    except _FAILURES as error:
        raise failed(command, error) from None


def failed(command: str, error: Exception | str) -> typer.Exit:
    """Say what is wrong; what to raise then."""
    for line in str(error).splitlines():
        typer.echo(f"inferencecache {command}: {line}", err=True)
    return typer.Exit(1)
