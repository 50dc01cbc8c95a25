"""The fake engine sends what its rules say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.simengine import fake, fake_process
from inferencecache.simengine.fake import FakeSettings, RejectedError
from tests.unit.subscriber.frames import Listener


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
        {"evict_after": -1},
        {"clear_every": -1},
        {"restart_every": -1},
        {"count": -1},
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
        fake_process.main(arguments)
    assert end.value.code == code


@pytest.mark.rule("SUB-190", "SUB-191", "SUB-192", "SUB-193", "SUB-194", "SUB-195", "SUB-196", "SUB-197")
def test_the_settings_have_the_names_and_defaults_of_the_contract() -> None:
    given = vars(fake_process.parser().parse_args([]))
    expected = {
        "bind": "tcp://0.0.0.0:5557",
        "topic": "kv-events",
        "block_size": 128,
        "num_blocks": 1,
        "events": 1,
        "start_token": 0,
        "interval": 0.5,
        "omit_token_ids": False,
    }
    assert {name: given[name] for name in expected} == expected


@pytest.mark.rule("SUB-202")
@pytest.mark.parametrize("encoding", ["tuple", "map"])
@pytest.mark.parametrize("hash_kind", ["int", "bytes"])
@pytest.mark.parametrize(
    ("more", "adapter", "tier"),
    [
        ({}, "", "T1"),
        ({"medium": "GPU"}, "", "T1"),
        ({"lora_id": 3, "lora_name": "sql"}, "sql", "T1"),
        ({"lora_name": "sql", "medium": "GPU"}, "sql", "T1"),
    ],
)
def test_the_sidecar_reads_every_form(
    encoding: Any, hash_kind: Any, more: dict[str, Any], adapter: str, tier: str
) -> None:
    settings = FakeSettings(
        block_size=4, num_blocks=3, events=2, encoding=encoding, hash_kind=hash_kind, **more
    )
    heard = Listener()
    heard.hear(b"kv-events", bytes(8), fake.payload(settings))
    keys = [key.hex() for key in prefix_digests(range(12), 4)]
    assert [
        (report["prefix_hash"], report["adapter_id"], report["tier"]) for report in heard.take_reports()
    ] == [(key, adapter, tier) for key in keys]
    heard.hear(b"kv-events", bytes([*bytes(7), 1]), fake.payload(settings, "removed"))
    assert [report["prefix_hash"] for report in heard.take_reports()] == keys
    heard.hear(b"kv-events", bytes([*bytes(7), 2]), fake.payload(settings, "cleared"))
    assert heard.take_reports() == [{"op": "clear"}]
    assert heard.counters() == {}


@pytest.mark.rule("SUB-202")
def test_blocks_can_be_removed_cleared_and_counted() -> None:
    def kinds(**settings: Any) -> list[str]:
        return [message.kind for message in fake.messages(FakeSettings(count=6, **settings))]

    assert kinds() == ["stored"] * 6
    assert kinds(evict_after=2) == ["stored"] * 2 + ["removed"] * 4
    assert kinds(clear_every=3, evict_after=4) == [
        "stored",
        "stored",
        "cleared",
        "stored",
        "removed",
        "cleared",
    ]


@pytest.mark.rule("SUB-202")
def test_a_restart_begins_another_process_after_so_many_messages() -> None:
    restarts = [message.restarts for message in fake.messages(FakeSettings(count=7, restart_every=3))]
    assert restarts == [False, False, False, True, False, False, True]
