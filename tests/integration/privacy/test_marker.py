"""What a prompt says stays with engine and request: it is in no log line, no metric and no stored message."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest
from aiohttp import ClientSession

from inferencecache.core.log import Log
from inferencecache.core.log.jetstream import read_message, stream_info
from inferencecache.core.service import NatsSettings
from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.local_stack import MODEL, LocalStack
from tests.support.models import make_model
from tests.support.waiting import eventually

MARKER = "xylophone-quartz-marmalade"
TOKENS = list(range(1_618_033_900, 1_618_033_900 + 64))
SCOPE: dict[str, Any] = {"model_id": MODEL, "tenant_id": "demo", "hash_scheme": "vllm"}
PAGES = {"--http-bind-address", "--health-address"}


def traces_of_the_prompt() -> dict[str, bytes]:
    """How it would look in text, in MessagePack and in columns; of two ids, since one may be chance."""
    first, second = TOKENS[7:9]
    return {
        "text": MARKER.encode(),
        "an id in decimal": str(first).encode(),
        "ids in MessagePack": b"\xce" + struct.pack(">I", first) + b"\xce" + struct.pack(">I", second),
        "ids as 32 bits, little end first": struct.pack("<2I", first, second),
        "ids as 32 bits, big end first": struct.pack(">2I", first, second),
        "ids as 64 bits, little end first": struct.pack("<2Q", first, second),
    }


@asynccontextmanager
async def log_of(stack: LocalStack) -> AsyncIterator[Log]:
    log = await Log.connect(NatsSettings(stack.option("router-1", "--nats-url"), insecure=True), name="test")
    try:
        yield log
    finally:
        await log.close()


async def stored_messages(log: Log) -> list[bytes]:
    """Subject, headers and payload of every message of every stream: events, deltas, snapshots, buckets."""
    answer = await log.request("$JS.API.STREAM.NAMES", b"{}", timeout_s=5)
    stored = []
    for name in msgspec.json.decode(answer.data)["streams"]:
        state = (await stream_info(log, name)).state
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            message = await read_message(log, name, sequence=sequence)
            if message is not None:
                stored.append(f"{message.subject} {message.headers}".encode() + message.payload)
    return stored


async def pages(stack: LocalStack) -> dict[str, bytes]:
    """The metrics page of every process that has one."""
    found = {}
    async with ClientSession() as http:
        for name, process in stack.processes.items():
            for flag in PAGES & set(process["command"]):
                async with http.get(f"http://{stack.option(name, flag)}/metrics") as response:
                    found[f"metrics of {name}"] = await response.read()
    return found


async def ask_in_every_way(channel: grpc.aio.Channel) -> set[str]:
    """Calls that carry the prompt, answered and refused; the reasons of lookups."""
    router = InferenceCacheStub(channel)
    lookups = [
        pb.LookupRouteRequest(**SCOPE, token_ids=TOKENS),
        pb.LookupRouteRequest(**SCOPE, prompt_text=MARKER * 9),
        pb.LookupRouteRequest(token_ids=TOKENS, prompt_text=MARKER),
    ]
    answers = [await router.LookupRoute(lookup, timeout=10) for lookup in lookups]
    await router.LookupPDRoute(pb.LookupPDRouteRequest(model_id=MODEL, token_ids=TOKENS), timeout=10)
    template = pb.RenderTemplateRequest(template_ref="a/b", variables={"question": MARKER})
    await router.RenderTemplate(template, timeout=10)
    return {answer.reason_code for answer in answers}


async def replays(stack: LocalStack, folder: Path) -> dict[str, bytes]:
    """A slice of the log, and what replays say when they are asked about the prompt."""
    prompt, file = folder / "prompt.txt", folder / "marker.slice"
    prompt.write_text(" ".join(map(str, TOKENS)))
    questions = {
        "history": ("--why", f"@{prompt}", "--replica", "engine-1"),
        "explanation": ("--explain", "--tokens", f"@{prompt}", "--json"),
        "events": ("--events", "--json"),
        "export": ("--export", str(file)),
    }
    found = {}
    for name, question in questions.items():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "inferencecache.cli", "replay", *question),
            *("--nats-url", stack.option("router-1", "--nats-url")),
            stdout=asyncio.subprocess.PIPE,
        )
        found[f"{name} of a replay"], _ = await process.communicate()
        assert process.returncode == 0
    assert b"holds all 4 blocks" in found["history of a replay"]
    return found | {"a slice": file.read_bytes()}


@pytest.mark.timeout(400)
@pytest.mark.rule("OPS-17")
async def test_a_marker_prompt_is_in_no_log_line_no_metric_and_no_stored_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path / "models" / MODEL)
    monkeypatch.setenv("INFERENCECACHE_LOG_LEVEL", "debug")
    monkeypatch.setenv("INFERENCECACHE_TOKENIZER_MODELS_DIR", str(tmp_path / "models"))
    folder = tmp_path / "state"
    folder.mkdir()
    async with LocalStack(folder, "--engines=1", "--indexers=1") as stack:
        await stack.complete("engine-1", TOKENS)
        await eventually(lambda: stack.is_hinted("router-2", TOKENS, "engine-1"), within_s=30)
        async with grpc.aio.insecure_channel(stack.option("router-1", "--grpc-bind-address")) as channel:
            reasons = await ask_in_every_way(channel)
            assert "PREFIX_MATCH" in reasons
        said = await pages(stack) | await replays(stack, tmp_path)
        async with log_of(stack) as log:
            stored = await stored_messages(log)
    said |= {f"log of {path.stem}": path.read_bytes() for path in (folder / "logs").glob("*.log")}
    said["output of up"] = stack.output.encode()
    said |= {f"stored message {number}": message for number, message in enumerate(stored)}

    assert any(b"lookup_decided" in text for text in said.values())
    assert any(b"ic.ev." in message for message in stored)
    assert any(b"inferencecache_lookup_route_calls_total" in text for text in said.values())
    found = {
        (place, form)
        for place, text in said.items()
        for form, trace in traces_of_the_prompt().items()
        if trace in text
    }
    assert found == set()


def test_the_search_would_find_the_prompt_in_each_form() -> None:
    record = msgspec.msgpack.encode({"tokens": TOKENS})
    column = b"".join(struct.pack("<I", token) for token in TOKENS)
    line = msgspec.json.encode({"prompt": MARKER, "ids": TOKENS})
    forms = traces_of_the_prompt()
    assert forms["ids in MessagePack"] in record
    assert forms["ids as 32 bits, little end first"] in column
    assert forms["text"] in line
    assert forms["an id in decimal"] in line
