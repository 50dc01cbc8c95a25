"""Snapshots whose frames are sound and are not the ones that were written, or not in their places."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.snapshot import UnreadableSnapshotError, encode_snapshot, load_fold, load_view
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Begin, TenantPolicy
from tests.oracle.logs import LogWriter, stored

HEAD = struct.Struct("<IQ")
HOLDS, LIVES, MEMORY, END = 2, -3, -2, -1


def frames(ttl_us: int) -> list[bytes]:
    """The frames of a small snapshot."""
    writer = LogWriter()
    writer.claim()
    writer.tick()
    writer.apply_policy([TenantPolicy(TenantId("t"), ttl_us)])
    writer.sidecar("r", "life", 1, Begin(), stored([b"p" * 8], [16]))
    fold = Fold(1 << 8)
    for message in writer.messages:
        fold.fold(message)
    data = b"".join(encode_snapshot(fold, Position()))
    found = []
    while data:
        size = HEAD.size + HEAD.unpack_from(data)[0]
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda mine, _: mine[:LIVES] + mine[MEMORY:], id="lives lost"),
        pytest.param(lambda mine, _: mine[:MEMORY] + mine[END:], id="memory lost"),
        pytest.param(lambda mine, _: [*mine[:HOLDS], mine[HOLDS], *mine[HOLDS:]], id="holds twice"),
        pytest.param(lambda mine, _: [*mine[:LIVES], mine[MEMORY], mine[LIVES], mine[END]], id="moved"),
        pytest.param(lambda mine, other: [*mine[:MEMORY], other[MEMORY], mine[END]], id="another's memory"),
        pytest.param(lambda mine, other: [*mine[:END], other[END]], id="another's end"),
    ],
)
def test_a_frame_that_is_lost_repeated_moved_or_foreign_makes_a_snapshot_unreadable(
    damage: Callable[[list[bytes], list[bytes]], list[bytes]],
) -> None:
    mine, other = frames(1_000_000), frames(2_000_000)
    assert load_fold(mine).view.digest == load_view(mine).digest
    for load in (load_fold, load_view):
        with pytest.raises(UnreadableSnapshotError, match="missing, repeated or out of place"):
            load(damage(mine, other))
