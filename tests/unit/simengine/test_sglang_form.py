"""Events in SGLang's words have the shape that SGLang sends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferencecache.simengine.cache import Stored
from inferencecache.simengine.events import AllCleared, BlocksRemoved, BlocksStored, Event, UnwritableError
from inferencecache.simengine.sglang_form import SglangForm

TIME = 1779901681.5
HASH = bytes([255, *range(31)])
RUN = Stored((HASH,), bytes(32), (1, 2, 3, 4))
FIRST_8 = int.from_bytes(HASH[:8], "big", signed=True)


def sent(form: SglangForm, *events: Event) -> list[Any]:
    time_s, bodies, rank = msgspec.msgpack.decode(form.payload(events, TIME))
    assert (time_s, rank) == (TIME, 0)
    return list(bodies)


@pytest.mark.rule("SUB-220", "SUB-221", "SUB-222")
def test_maps_leave_out_what_there_is_not_and_hashes_are_signed() -> None:
    assert FIRST_8 < 0
    stored, copied, removed, cleared = sent(
        SglangForm(4),
        BlocksStored(RUN),
        BlocksStored(RUN, "host"),
        BlocksRemoved([HASH], "host"),
        AllCleared(),
    )
    assert stored == {
        "type": "BlockStored",
        "block_hashes": [FIRST_8],
        "parent_block_hash": 0,
        "token_ids": [1, 2, 3, 4],
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
    }
    assert copied == stored | {"medium": "CPU_PINNED"}
    assert removed == {"type": "BlockRemoved", "block_hashes": [FIRST_8], "medium": "CPU_PINNED"}
    assert cleared == {"type": "AllBlocksCleared"}


def test_tuples_keep_their_positions() -> None:
    form = SglangForm(4, encoding="tuple")
    assert sent(form, BlocksStored(RUN), BlocksRemoved([HASH]), AllCleared()) == [
        ["BlockStored", [FIRST_8], 0, [1, 2, 3, 4], 4, None, "GPU"],
        ["BlockRemoved", [FIRST_8], "GPU"],
        ["AllBlocksCleared"],
    ]


def test_adapters_have_names_in_maps_and_no_place_in_tuples() -> None:
    run = RUN._replace(adapter="sql")
    [stored] = sent(SglangForm(4, adapters=("sql",)), BlocksStored(run))
    assert (stored["lora_name"], stored["lora_id"]) == ("sql", None)
    with pytest.raises(UnwritableError, match="--lora-adapters"):
        SglangForm(4, encoding="tuple", adapters=("sql",))
