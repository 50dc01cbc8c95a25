"""The bytes of the log and of the deltas are a contract between versions: they never change.

`tests/data/golden/log_v1.json` holds them in hexadecimal. A new record adds a line; a line that is
there is never edited. Run `python -m tests.unit.schemas.test_golden` to add missing lines.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from inferencecache.schemas.deltas import UnreadableDeltaError, decode_delta, encode_delta
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    UndecodableBatchError,
    decode_batch,
    encode_batch,
)
from tests.unit.schemas.samples import BATCHES, DELTA

GROWN = {"Budget", "all"}
"""Lines with records that have trailing fields now; another line shows them."""
GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "log_v1.json"


def _golden() -> dict[str, str]:
    lines: dict[str, str] = json.loads(GOLDEN.read_text())
    return lines


def _cut(written: bytes, payload: bytes) -> bytes:
    """What is written, without the trailing fields that the records of `payload` do not have."""
    now, before = msgspec.msgpack.decode(written), msgspec.msgpack.decode(payload)
    now[3] = [record[: len(old)] for record, old in zip(now[3], before[3], strict=True)]
    return msgspec.msgpack.encode(now)


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_a_batch_is_written_and_read_as_version_1_did(name: str) -> None:
    payload = bytes.fromhex(_golden()[f"batch.{name}"])
    written = encode_batch(BATCHES[name])
    assert (_cut(written, payload) if name in GROWN else written) == payload
    assert decode_batch(payload).batch == BATCHES[name]


def test_a_delta_is_written_and_read_as_version_1_did() -> None:
    payload = bytes.fromhex(_golden()["delta"])
    assert encode_delta(DELTA) == payload
    assert decode_delta(payload) == DELTA


def test_every_record_has_a_golden_line() -> None:
    names = {info.__name__ for info in AnyRecord.__args__}
    assert {name.removeprefix("batch.") for name in _golden() if name.startswith("batch.")} >= names


def test_unknown_records_are_skipped_and_broken_ones_isolated() -> None:
    good = msgspec.msgpack.decode(bytes.fromhex(_golden()["batch.Alive"]))[3][0]
    payload = msgspec.msgpack.encode(["i", 1, 0, [[99, "later"], good, [2, 5], good]])
    decoded = decode_batch(payload)
    assert (len(decoded.batch.records), decoded.unknown, decoded.malformed) == (2, 1, 1)


def test_fields_that_a_later_version_appends_are_ignored() -> None:
    for batch in BATCHES.values():
        raw = msgspec.msgpack.decode(encode_batch(batch))
        raw[3] = [[*record, "later"] for record in raw[3]]
        assert decode_batch(msgspec.msgpack.encode([*raw, "later"])).batch == batch


def test_trailing_fields_that_an_earlier_version_lacked_take_their_defaults() -> None:
    raw = msgspec.msgpack.encode(["i", 1, 0, [[1, "uid"], [7], [11, "o", 4, 5]]])
    begin, stats, tick = decode_batch(raw).batch.records
    assert (begin.block_size, stats.hit_rate, tick.sweep_interval_s) == (0, 0.0, 60)  # type: ignore[union-attr]


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", b"\x94", b"\x91" * 4000, b"\x94\x01\x01\x01\x90"])
def test_a_payload_that_is_no_batch_is_a_typed_error_without_content(payload: bytes) -> None:
    with pytest.raises(UndecodableBatchError, match=f"^{len(payload)} bytes"):
        decode_batch(payload)


def test_a_batch_may_lack_every_trailing_field() -> None:
    assert decode_batch(b"\x90").batch == Batch()


def test_a_delta_of_another_format_or_with_damage_is_unreadable() -> None:
    raw = msgspec.msgpack.decode(encode_delta(DELTA))
    raw[0] = 2
    with pytest.raises(UnreadableDeltaError, match="delta format 2"):
        decode_delta(msgspec.msgpack.encode(raw))
    with pytest.raises(UnreadableDeltaError):
        decode_delta(encode_delta(DELTA)[:-1])


def _write_missing() -> None:
    lines = _golden() if GOLDEN.exists() else {}
    for name, batch in BATCHES.items():
        lines.setdefault(f"batch.{name}", encode_batch(batch).hex())
    lines.setdefault("delta", encode_delta(DELTA).hex())
    GOLDEN.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    _write_missing()
