"""A slice has all that is needed to replay it, and nothing else is taken for one."""

from __future__ import annotations

from random import Random

import pytest
from xxhash import xxh3_64_intdigest

from inferencecache.core.index.snapshot import UnreadableSnapshotError, encode_snapshot
from inferencecache.core.replay import RawMessage, Rebuild, UnreadableSliceError, read_slice
from inferencecache.core.replay.slices import MAGIC
from inferencecache.schemas.positions import Position
from tests.oracle.random_log import RandomLog
from tests.support.slices import KEY, raw, replayed, slice_of

MESSAGES = 300
HALF = MESSAGES // 2


def messages(seed: int) -> list[RawMessage]:
    log = RandomLog(Random(seed))
    return [raw(log.message()) for _ in range(MESSAGES)]


def test_messages_policies_and_base_come_back_as_they_were() -> None:
    all_of = messages(1)
    first = replayed(read_slice([slice_of(all_of[:HALF])]).partitions[0])
    base = list(encode_snapshot(first.fold, Position(), KEY))
    written = slice_of(all_of[HALF:], at=first.position, base=base, policies={7: b"{}", 3: b"[]"})
    read = read_slice([written])
    assert read.policies == {3: b"[]", 7: b"{}"}
    part = read.partitions[0]
    assert (part.at, part.base, list(part.messages())) == (first.position, base, all_of[HALF:])
    assert part.last == all_of[-1].position
    assert part.count == MESSAGES - HALF


@pytest.mark.parametrize("seed", range(3))
def test_a_slice_from_a_base_leads_where_the_whole_log_leads(seed: int) -> None:
    all_of = messages(seed)
    whole = replayed(read_slice([slice_of(all_of)]).partitions[0])
    first = replayed(read_slice([slice_of(all_of[:HALF])]).partitions[0])
    base = list(encode_snapshot(first.fold, Position(), KEY))
    rest = replayed(read_slice([slice_of(all_of[HALF:], at=first.position, base=base)]).partitions[0])
    assert rest.fold.view.digest == whole.fold.view.digest
    assert rest.fold.view.access_digest == whole.fold.view.access_digest
    assert rest.fold.lives == whole.fold.lives
    assert rest.position == whole.position


def test_a_slice_may_be_cut_anywhere_on_its_way() -> None:
    written = slice_of(messages(2))
    one_by_one = read_slice([written[at : at + 1] for at in range(len(written))])
    assert list(one_by_one.partitions[0].messages()) == messages(2)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: b"", "incomplete"),
        (lambda whole: b"\x7fELF" + whole, "no slice"),
        (lambda whole: whole[:-1], "incomplete"),
        (lambda whole: whole + b"\0", "incomplete"),
        (lambda whole: whole[:300] + bytes([whole[300] ^ 1]) + whole[301:], "checksum"),
        (lambda whole: MAGIC + whole, "a frame of"),
        (lambda whole: whole + whole[len(MAGIC) :], "out of place"),
    ],
)
def test_what_is_damaged_is_refused(damage: object, said: str) -> None:
    assert callable(damage)
    with pytest.raises(UnreadableSliceError, match=said):
        read_slice([damage(slice_of(messages(3)))])


def test_a_missing_frame_is_noticed() -> None:
    head, *frames = _frames(slice_of(messages(3) * 1, policies={1: b"{}", 2: b"{}"}))
    assert len(frames) > 4
    with pytest.raises(UnreadableSliceError, match="missing, repeated or out of place"):
        read_slice([head, *frames[:-2], frames[-1]])


def test_messages_with_a_hole_are_refused() -> None:
    of = messages(4)
    with pytest.raises(UnreadableSliceError, match="missing before 3"):
        read_slice([slice_of(of[2:])])


def test_a_base_of_another_moment_or_partition_is_refused() -> None:
    first = replayed(read_slice([slice_of(messages(5))]).partitions[0])
    base = list(encode_snapshot(first.fold, Position(), KEY))
    with pytest.raises(UnreadableSnapshotError, match="another partition"):
        Rebuild("1.1", first.position, base)
    with pytest.raises(UnreadableSnapshotError, match="another message"):
        Rebuild(KEY, Position(7, 7, 7), base)


def _frames(whole: bytes) -> list[bytes]:
    frames, at = [whole[: len(MAGIC)]], len(MAGIC)
    while at < len(whole):
        length = int.from_bytes(whole[at : at + 4], "little")
        payload = whole[at + 12 : at + 12 + length]
        assert xxh3_64_intdigest(payload) == int.from_bytes(whole[at + 4 : at + 12], "little")
        frames.append(whole[at : at + 12 + length])
        at += 12 + length
    return frames
