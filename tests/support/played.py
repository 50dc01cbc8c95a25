"""A connection to a log that is played by the test."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from inferencecache.core.log.connection import Callback, Subscription
from inferencecache.core.log.inbox import Message


class Arrived(msgspec.Struct):
    """A message as the client library hands it over."""

    subject: str = "s.a"
    reply: str = ""
    data: bytes = b""
    headers: dict[str, str] | None = None


class PlayedLog:
    """A connection to a server with one stream `S`; it is its own only subscription."""

    def __init__(self) -> None:
        self.asked_for_messages = asyncio.Event()
        self.waiting = 0
        self.callback: Callback = lambda _: None

    def new_inbox(self) -> str:
        return "inbox"

    def on_connected(self, _: object) -> object:
        return lambda: None

    async def wait_connected(self) -> None:
        pass

    async def subscribe(self, _: str, callback: Callback) -> Subscription:
        self.callback = callback
        return cast("Subscription", self)

    async def cancel(self) -> None:
        pass

    async def request(self, subject: str, *_: object, **__: object) -> Message:
        answer: dict[str, object] = {"name": "c", "num_pending": 1}
        if ".STREAM.INFO." in subject:
            answer = {"config": {}, "state": {"first_seq": 1, "last_seq": 1}}
        return Arrived(data=msgspec.json.encode(answer))

    async def send(self, subject: str, *_: object) -> bool:
        if ".MSG.NEXT." in subject:
            self.asked_for_messages.set()
        return True

    def arrive(self, *messages: Arrived) -> None:
        """All of them came by one read of the socket."""
        for number, message in enumerate(messages):
            self.waiting = len(messages) - number - 1
            self.callback(message)
