"""The fake engine sends what its rules say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferencecache.simengine import fake
from inferencecache.simengine.fake import FakeSettings, RejectedError


@pytest.mark.rule("SUB-W39", "SUB-200")
def test_the_expectation_names_every_key() -> None:
    assert fake.expectation(FakeSettings()) == "EXPECT prefix_hash[0]=83f90a7debd4f39c token_count=128"


@pytest.mark.rule("SUB-200")
def test_without_token_ids_nothing_is_expected() -> None:
    assert fake.expectation(FakeSettings(omit_token_ids=True)).startswith("EXPECT no index entries")


@pytest.mark.rule("SUB-W40", "SUB-199")
def test_blocks_are_split_evenly_with_the_surplus_first() -> None:
    _, events = msgspec.msgpack.decode(fake.payload(FakeSettings(num_blocks=7, events=3, block_size=4)))
    assert [len(event[1]) for event in events] == [3, 2, 2]
    assert [event[2] for event in events] == [None, 0xE002, 0xE004]


@pytest.mark.rule("SUB-198")
def test_the_message_has_the_bytes_of_the_fixture() -> None:
    settings = FakeSettings(num_blocks=3, events=2, block_size=4, start_token=100)
    assert fake.payload(settings).hex() == (
        "92cb00000000000000009296ab426c6f636b53746f72656492cde000cde001c0986465666768696a6b04c096ab426c6f636b"
        "53746f72656491cde002cde001946c6d6e6f04c0"
    )


@pytest.mark.rule("SUB-201")
@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": 0},
        {"num_blocks": 0},
        {"block_size": 2**23, "num_blocks": 3},
        {"start_token": -1},
        {"start_token": 2**32 - 127},
        {"interval_s": 0},
        {"events": 0},
        {"events": 2},
    ],
)
def test_settings_that_cannot_be_published_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(RejectedError):
        FakeSettings(**wrong)


@pytest.mark.rule("SUB-201")
@pytest.mark.parametrize(
    ("arguments", "code"), [(["--num-blocks=0"], 1), (["--unknown"], 2), (["--interval=soon"], 2)]
)
def test_exit_codes_tell_unreadable_from_rejected_settings(arguments: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as end:
        fake.main(arguments)
    assert end.value.code == code
