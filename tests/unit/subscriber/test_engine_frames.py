"""Every recorded engine frame is read, and reported, exactly as stated."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.kvevent_subscriber.events import (
    AllCleared,
    Event,
    Malformed,
    Removed,
    Stored,
    Unknown,
    UnreadableBatchError,
    decode_batch,
)
from inferencecache.kvevent_subscriber.frames import read_message, read_reply
from inferencecache.kvevent_subscriber.media import place_of
from tests.unit.subscriber.frames import KEEPING, NAMES, Listener, frames, parts, settings

LIVE = [name for name in NAMES if "messages" in frames(name)]
REPLAYED = [name for name in NAMES if "replies" in frames(name)]


@pytest.mark.rule(
    "SUB-240", "SUB-241", "SUB-027", "SUB-028", "SUB-029", "SUB-030", "SUB-032", "SUB-033", "SUB-034",
    "SUB-036", "SUB-038", "SUB-040",
)  # fmt: skip
@pytest.mark.parametrize("name", LIVE)
def test_a_frame_decodes_as_stated(name: str) -> None:
    fixture = frames(name)
    read = [_read(parts(message)) for message in fixture["messages"]]
    assert read == fixture["decoded"]


@pytest.mark.rule(
    "SUB-240", "SUB-005", "SUB-007", "SUB-070", "SUB-080", "SUB-087", "SUB-090", "SUB-100", "SUB-103",
    "SUB-108",
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "run"), [(name, run) for name in LIVE for run in range(len(frames(name)["runs"]))]
)
def test_a_frame_is_reported_as_stated(name: str, run: int) -> None:
    fixture = frames(name)
    expected = fixture["runs"][run]
    listener = Listener(
        settings(expected["config"], name), on_gap="keep" if name.startswith(KEEPING) else "mark"
    )
    reports = []
    for message in fixture["messages"]:
        reports += _hear(listener, parts(message))
    assert reports == expected["reports"]
    assert listener.counters() == expected["counters"]


@pytest.mark.rule("SUB-054", "SUB-055", "SUB-W26", "SUB-W27")
@pytest.mark.parametrize("name", REPLAYED)
def test_a_replayed_gap_is_reported_as_stated(name: str) -> None:
    fixture = frames(name)
    [expected] = fixture["runs"]
    listener = Listener(settings(expected["config"]), replays=True)
    # The fixture begins after the replay at start has brought nothing.
    listener.take(listener.path.connected(0, 0.0, None))
    listener.take(listener.path.reply(0, [b"", b"\xff" * 8, b""], 0.0))
    listener.requests.clear()
    reports = []
    for index, message in enumerate(fixture["live"]):
        reports += _hear(listener, parts(message))
        if index == fixture["request"]["sent_after_live_index"]:
            first = int.from_bytes(bytes.fromhex(fixture["request"]["parts_hex"][1]), "big")
            assert listener.requests == [(0, first)]
    for message in fixture["replies"]:
        reply = read_reply(parts(message))
        assert reply is not None
        listener.take(listener.path.reply(0, parts(message), 0.0))
        reports += listener.take_reports()
    assert _without_times(reports) == _without_times(expected["reports"])
    assert listener.counters() == expected["counters"]
    assert listener.closed == 2


def _hear(listener: Listener, message: list[bytes]) -> list[dict[str, Any]]:
    listener.hear(*message)
    return _stamped(listener.take_reports(), message[-1] if message else b"")


def _stamped(reports: list[dict[str, Any]], payload: bytes) -> list[dict[str, Any]]:
    return [report | {"ts_us": decode_batch(payload).time_us} for report in reports]


def _without_times(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Held live messages are applied when the replay ends, in one step with no batch of its own."""
    return [{name: value for name, value in report.items() if name != "ts_us"} for report in reports]


def _read(message: list[bytes]) -> dict[str, Any]:
    frame = read_message(message)
    if frame is None:
        return {"error": "no_frames"}
    try:
        batch = decode_batch(frame.payload)
    except UnreadableBatchError as error:
        return {"error": error.reason}
    return {"ts": batch.time_s, "rank": batch.rank, "events": [_event(event) for event in batch.events]}


def _event(event: Event) -> dict[str, Any]:
    match event:
        case Stored():
            return {
                "type": "BlockStored",
                "block_hashes": [hash_.hex() for hash_ in event.hashes],
                "parent": None if event.parent is None else event.parent.hex(),
                "token_ids": list(event.tokens),
                "block_size": event.block_size,
                "lora_id": event.lora_id,
                "lora_name": event.lora_name,
                "medium": event.medium,
                "extra_keys": None if event.extra_keys is None else list(event.extra_keys),
                "group_idx": event.group,
                "kind": event.kind,
                "locality": event.locality,
                "ownership": event.ownership,
                "cache_salt": event.cache_salt,
                "tier": place_of(event.medium, event.locality),
            }
        case Removed():
            return {
                "type": "BlockRemoved",
                "block_hashes": [hash_.hex() for hash_ in event.hashes],
                "medium": event.medium,
                "group_idx": event.group,
                "locality": event.locality,
                "ownership": event.ownership,
                "tier": place_of(event.medium, event.locality),
            }
        case AllCleared():
            return {"type": "AllBlocksCleared"}
        case Unknown(type=tag):
            return {"type": "?", "tag": tag}
        case Malformed(reason=reason):
            return {"type": "malformed", "reason": reason}
