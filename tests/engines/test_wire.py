"""Released engines send what the contract's table of releases says."""

from __future__ import annotations

import socket
from typing import NamedTuple

import msgspec
import pytest
import zmq
import zmq.asyncio

from inferencecache.kvevent_subscriber.events import AllCleared, Removed, Stored, decode_batch
from inferencecache.kvevent_subscriber.frames import END_OF_REPLAY
from tests.engines.conftest import StartPublishers
from tests.engines.publisher import TOPIC, Publisher, number_of
from tools.engines import Release

pytestmark = pytest.mark.engines

PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)


class Wire(NamedTuple):
    """A row of the table: how events are encoded, their fields in order, and how a replay answers.

    `binds_zeros` says whether an engine told to use 0.0.0.0 binds there; others connect.
    """

    form: type
    stored: tuple[str, ...]
    removed: tuple[str, ...]
    replay_topic: bool
    binds_zeros: bool = False


_FIRST = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium")
_VLLM_ARRAY = (
    *_FIRST,
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
_VLLM_NEWER = ("locality", "ownership", "session_id", "lookahead_token_ids")
WIRES = {
    "vllm": Wire(
        form=dict,
        stored=(*_VLLM_ARRAY, *_VLLM_NEWER),
        removed=("block_hashes", "medium", "group_idx", "locality", "ownership"),
        replay_topic=True,
    ),
    "vllm-array": Wire(
        form=list, stored=_VLLM_ARRAY, removed=("block_hashes", "medium", "group_idx"), replay_topic=False
    ),
    "sglang": Wire(
        form=dict,
        stored=(*_FIRST, "cache_salt", "session_id", "lora_name"),
        removed=("block_hashes", "medium"),
        replay_topic=True,
        binds_zeros=True,
    ),
}


@pytest.fixture
def wire(release: Release) -> Wire:
    return WIRES[release.name]


@pytest.mark.rule("SUB-027", "SUB-028", "SUB-029")
def test_events_have_the_fields_of_their_release(engine: Publisher, wire: Wire) -> None:
    assert engine.fields == {
        "BlockStored": list(wire.stored),
        "BlockRemoved": list(wire.removed),
        "AllBlocksCleared": [],
    }


@pytest.mark.rule("SUB-030", "SUB-034", "SUB-210", "SUB-211", "SUB-220")
async def test_events_have_the_form_of_their_release(engine: Publisher, wire: Wire) -> None:
    await engine.publish(engine.stored([11], PROMPT[:4]), engine.removed(11), {"type": "AllBlocksCleared"})
    await engine.has_published(0)
    payload = (await engine.replay())[0][-1]
    time_s, events, rank = msgspec.msgpack.decode(payload)
    assert isinstance(time_s, float)
    assert rank == 0
    assert {type(event) for event in events} == {wire.form}
    assert [type(event) for event in decode_batch(payload).events] == [Stored, Removed, AllCleared]


@pytest.mark.rule("SUB-011", "SUB-235", "SUB-237")
async def test_a_live_message_is_topic_number_and_payload(engine: Publisher) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as live:
        live.linger = 0
        live.subscribe(b"")
        live.connect(f"tcp://127.0.0.1:{engine.live_port}")
        while not await live.poll(20):
            await engine.clear()
        topic, number, payload = await live.recv_multipart()
    copies = {number_of(answer): answer for answer in await engine.replay()}
    assert topic == TOPIC.encode()
    assert copies[int.from_bytes(number, "big")][-2:] == [number, payload]


@pytest.mark.rule("SUB-218", "SUB-225")
async def test_only_some_engines_bind_every_address(start: StartPublishers, wire: Wire) -> None:
    [engine] = await start(host="0.0.0.0")
    with socket.socket() as asking:
        assert (asking.connect_ex(("127.0.0.1", engine.live_port)) == 0) == wire.binds_zeros


@pytest.mark.rule("SUB-054", "SUB-235")
async def test_a_replay_has_the_shape_of_its_release(engine: Publisher, wire: Wire) -> None:
    await engine.store([11], PROMPT[:4])
    await engine.clear()
    await engine.has_published(1)
    answers = await engine.replay(first=1)
    before = [b"", TOPIC.encode()] if wire.replay_topic else [b""]
    [copy, end] = answers
    assert copy[:-2] == before
    assert end[:-2] == ([b"", b""] if wire.replay_topic else [b""])
    assert end[-1] == b""
    assert [number_of(answer) for answer in answers] == [1, END_OF_REPLAY]


@pytest.mark.rule("SUB-235", "SUB-237")
async def test_a_replay_is_cut_to_the_last_batches(start: StartPublishers) -> None:
    [engine] = await start(buffer_steps=5)
    for number in range(8):
        await engine.store([number], PROMPT[:4])
    await engine.has_published(7)
    assert [number_of(answer) for answer in await engine.replay(first=1)] == [3, 4, 5, 6, 7, END_OF_REPLAY]
