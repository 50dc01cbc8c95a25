"""The event publisher of a released engine, run by `driver.py` in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq
import zmq.asyncio

from inferencecache.kvevent_subscriber.frames import END_OF_REPLAY, read_reply, replay_request
from tests.support.engine import BLOCK
from tests.support.ports import free_ports
from tests.support.waiting import a_moment
from tools.engines import Release, folder_of

DRIVER: Final = Path(__file__).with_name("driver.py")
MODULES: Final = {
    "vllm": "vllm.distributed.kv_events",
    "sglang": "sglang.srt.disaggregation.kv_events",
}
TOPIC: Final = "kv-events"
LIMIT_S: Final = 10.0

Hash = int | bytes
Event = dict[str, Any]


class PublisherEndedError(Exception):
    """The publisher's process ended; the message is what it said."""


class PortTakenError(PublisherEndedError):
    """Somebody else has the port."""


class Publisher:
    """One data-parallel rank of an engine, with events in its release's own words.

    `port` is the base port of `ranks` ranks; their replay ports follow. Both engines offset them by rank.
    By `host` an engine tells whether it binds or connects.
    """

    def __init__(
        self,
        release: Release,
        port: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        buffer_steps: int = 10_000,
        host: str = "*",
    ) -> None:
        self.release = release
        self.rank = rank
        self.fields: dict[str, list[str]] = {}
        self.live_port, self.replay_port = port + rank, port + ranks + rank
        self._config = {
            "publisher": "zmq",
            "endpoint": f"tcp://{host}:{port}",
            "replay_endpoint": f"tcp://*:{port + ranks}",
            "buffer_steps": buffer_steps,
            "topic": TOPIC,
        }
        if release.package == "vllm":
            self._config["enable_kv_cache_events"] = True
        self._process: asyncio.subprocess.Process | None = None

    # ------------------------------------------------------------------ what an engine does

    async def store(
        self, hashes: Sequence[Hash], tokens: Sequence[Any], parent: Hash | None = None, **more: Any
    ) -> None:
        """Announce blocks."""
        await self.publish(self.stored(hashes, tokens, parent, **more))

    async def remove(self, *hashes: Hash, **more: Any) -> None:
        """Announce that blocks are gone."""
        await self.publish(self.removed(*hashes, **more))

    async def clear(self) -> None:
        """Announce that everything is gone."""
        await self.publish({"type": "AllBlocksCleared"})

    def stored(
        self, hashes: Sequence[Hash], tokens: Sequence[Any], parent: Hash | None = None, **more: Any
    ) -> Event:
        """A store of full attention, of group 0 where the release has groups."""
        grouped = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"} if self.knows("group_idx") else {}
        return {
            "type": "BlockStored",
            "block_hashes": list(hashes),
            "parent_block_hash": parent,
            "token_ids": list(tokens),
            "block_size": BLOCK,
            "medium": "GPU",
            **grouped,
            **more,
        }

    def removed(self, *hashes: Hash, **more: Any) -> Event:
        """A removal from GPU memory, of group 0 where the release has groups."""
        grouped = {"group_idx": 0} if self.knows("group_idx") else {}
        return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **grouped, **more}

    def knows(self, field: str) -> bool:
        """Have stores of this release such a field?"""
        return field in self.fields["BlockStored"]

    async def publish(self, *events: Event, lost: bool = False) -> None:
        """Publish one batch; a lost one is only to be had by replay."""
        await self._do("publish", events=events, lost=lost)

    async def spoil(self) -> None:
        """Publish something that cannot be encoded."""
        await self._do("spoil")

    # ------------------------------------------------------------------ what it says

    async def replay(self, first: int = 0) -> list[list[bytes]]:
        """The parts of every answer to a replay request as a DEALER sees them, end marker included."""
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as asking:
            asking.linger = 0
            asking.connect(f"tcp://127.0.0.1:{self.replay_port}")
            await asking.send_multipart(replay_request(first))
            answers: list[list[bytes]] = []
            async with asyncio.timeout(LIMIT_S):
                while not answers or number_of(answers[-1]) != END_OF_REPLAY:
                    answers.append(await asking.recv_multipart())
            return answers

    async def has_published(self, number: int) -> None:
        """Wait until the batch with this number has left."""
        async with asyncio.timeout(LIMIT_S):
            while not any(number_of(answer) == number for answer in await self.replay(number)):
                await a_moment()

    # ------------------------------------------------------------------ its process

    async def start(self) -> None:
        """Start the process. Raises `PortTakenError`."""
        given = {
            "folder": str(folder_of(self.release)),
            "module": MODULES[self.release.package],
            "rank": self.rank,
            "config": self._config,
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(DRIVER), json.dumps(given)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.fields = (await self._answer(self._process))["fields"]

    async def kill(self) -> None:
        """End the process by force, with all it remembers."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    async def _do(self, what: str, **arguments: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        body = msgspec.msgpack.encode({"do": what, **arguments})
        self._process.stdin.write(len(body).to_bytes(4, "big") + body)
        await self._answer(self._process)

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(LIMIT_S):
                length = int.from_bytes(await process.stdout.readexactly(4), "big")
                answer: dict[str, Any] = msgspec.msgpack.decode(await process.stdout.readexactly(length))
                return answer
        except asyncio.IncompleteReadError:
            said = (await process.communicate())[1].decode()
            self._process = None
            raise (PortTakenError if "Address already in use" in said else PublisherEndedError)(
                said
            ) from None


def number_of(parts: Sequence[bytes]) -> int:
    """The number that an answer to a replay request carries."""
    reply = read_reply(parts)
    assert reply is not None
    return reply.sequence


async def start_publishers(release: Release, *, ranks: int = 1, **how: Any) -> list[Publisher]:
    """All ranks of an engine, on ports that were free a moment ago and, if not any more, on others."""
    while True:
        port = free_ports(2 * ranks)[0]
        publishers = [Publisher(release, port, rank=rank, ranks=ranks, **how) for rank in range(ranks)]
        try:
            for publisher in publishers:
                await publisher.start()
        except PortTakenError:
            for publisher in publishers:
                await publisher.kill()
        else:
            return publishers
