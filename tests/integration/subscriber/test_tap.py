"""The tap shows what an engine says, and nothing of its prompts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import pytest

from inferencecache.kvevent_subscriber.tap import show_message
from tests.support.engine import Engine, stored
from tests.support.waiting import eventually

PROMPT = tuple(range(7_654_321, 7_654_329))
"""Token ids that appear nowhere else."""
SALT = "salt-of-a-tenant"


class Running:
    """A tap as a process, and what it has written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out: list[str] = []
        self.log = ""
        self._reading = asyncio.gather(self._read_out(), self._read_log())

    @classmethod
    async def start(cls, *arguments: str) -> Running:
        command = (sys.executable, "-m", "inferencecache.kvevent_subscriber.tap", *arguments)
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=os.environ))

    async def ended(self) -> int:
        async with asyncio.timeout(15):
            await self._reading
            return await self.process.wait()

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.out.append(line.decode())

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log += line.decode()


async def subscribed(*arguments: str) -> Running:
    tap = await Running.start(*arguments)
    await eventually(lambda: "engine_subscribed" in tap.log, within_s=15)
    return tap


def leaks(text: str) -> list[Any]:
    return [secret for secret in (*map(str, PROMPT), SALT) if secret in text]


@pytest.mark.rule("SUB-203")
async def test_it_prints_as_many_messages_as_it_is_asked_for_without_a_token_of_a_prompt(
    engine: Engine,
) -> None:
    tap = await subscribed(f"--engine-endpoint={engine.live_endpoint}", "--count=2", "--json")
    await engine.publish(stored([11, 12], PROMPT, cache_salt=SALT, extra_keys=[[SALT], None]), {"type": 7})
    await engine.remove(12)
    await engine.clear()
    assert await tap.ended() == 0
    first, second = map(json.loads, tap.out)
    assert (first["topic"], first["sequence"], first["rank"]) == ("kv-events", 0, 0)
    [block, malformed] = first["events"]
    assert block == {
        "type": "BlockStored",
        "block_hashes": ["000000000000000b", "000000000000000c"],
        "token_count": 8,
        "block_size": 4,
        "medium": "GPU",
        "group": 0,
        "kind": "full_attention",
        "has_extra_keys": True,
        "has_cache_salt": True,
    }
    assert malformed == {"error": "tag_type"}
    assert [event["type"] for event in second["events"]] == ["BlockRemoved"]
    assert leaks("".join(tap.out) + tap.log) == []


@pytest.mark.rule("SUB-203", "SUB-184")
async def test_without_a_count_it_goes_on_until_a_signal_ends_it_with_0(engine: Engine) -> None:
    tap = await subscribed(f"--engine-endpoint={engine.live_endpoint}", "--topic=kv")
    await engine.store([11, 12], PROMPT)
    await engine.clear()
    await eventually(lambda: any("AllBlocksCleared" in line for line in tap.out), within_s=15)
    assert "token_count=8" in tap.out[1]
    tap.process.send_signal(signal.SIGTERM)
    assert await tap.ended() == 0
    assert leaks("".join(tap.out) + tap.log) == []


@pytest.mark.rule("SUB-203")
@pytest.mark.parametrize("payload", [b"\xc1 my prompt", b"\x92\xa9my prompt\x90"])
def test_of_a_payload_that_cannot_be_read_only_length_and_error_are_shown(payload: bytes) -> None:
    shown = show_message([b"kv-events", bytes(8), payload])
    assert shown is not None
    error = "ts" if payload[0] == 0x92 else "not_msgpack"
    assert shown == {"topic": "kv-events", "sequence": 0, "bytes": len(payload), "error": error}


@pytest.mark.rule("SUB-203", "SUB-186")
async def test_its_help_names_every_flag_and_a_wrong_one_ends_it_with_2() -> None:
    told = await Running.start("--help")
    assert await told.ended() == 0
    for flag in ("--engine-endpoint", "--topic", "--count", "--json"):
        assert flag in "".join(told.out)
    assert await (await Running.start("--count=-1")).ended() == 2
