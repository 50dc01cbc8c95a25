"""The indexer's settings: defaults, what is refused, and why."""

from __future__ import annotations

import subprocess
import sys

import pytest

from inferencecache.core.service import AssetSettings
from inferencecache.indexer.settings import IndexerSettings, read_settings

NATS = ("--nats-url=nats://n:4222", "--insecure-nats")


def settings(*arguments: str, **environment: str) -> IndexerSettings:
    return read_settings([*NATS, *arguments], environment)


def test_defaults() -> None:
    read = settings()
    assert read.http_address == ("0.0.0.0", 8080)
    assert read.assets == AssetSettings(partitions=2, replicas=1)
    assert read.max_entries == 1_000_000
    assert read.snapshot_interval_s == 600
    assert read.sweep_interval_s == 60
    assert read.delta_interval_s == 0.01


def test_every_setting_has_a_flag_and_a_variable() -> None:
    read = settings(
        "--max-entries=5",
        "--sweep-interval=5s",
        INFERENCECACHE_SNAPSHOT_INTERVAL="1m",
        INFERENCECACHE_DELTA_INTERVAL="5ms",
        INFERENCECACHE_PARTITIONS="8",
        INFERENCECACHE_NATS_REPLICAS="3",
        INFERENCECACHE_HTTP_BIND_ADDRESS="127.0.0.1:1",
    )
    assert (read.max_entries, read.sweep_interval_s) == (5, 5)
    assert (read.snapshot_interval_s, read.delta_interval_s) == (60, 0.005)
    assert read.assets == AssetSettings(8, 3)
    assert read.http_address == ("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--max-entries=many", "whole number of entries"),
        ("--partitions=0", "the least is 1"),
        ("--sweep-interval=500ms", "whole seconds"),
        ("--sweep-interval=1m500ms", "whole seconds"),
        ("--delta-interval=0", "from 1ms to 1s"),
        ("--snapshot-interval=2h", "from 1s to 1h"),
        ("--snapshot-interval=10", "not a duration"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_write(
    argument: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        settings(argument)
    assert error.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.rule("IDX-08", "IDX-09")
def test_a_cap_of_nothing_is_no_limit_and_a_sweep_of_nothing_the_default() -> None:
    assert settings("--max-entries=0").max_entries == settings("--max-entries=-7").max_entries == -1
    assert settings("--sweep-interval=0").sweep_interval_s == 60


def test_a_server_without_authentication_has_to_be_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--nats-url=nats://n:4222"], {})
    assert "--insecure-nats" in capsys.readouterr().err


def test_a_wrong_flag_is_told_before_anything_slow_is_imported() -> None:
    code = "import sys; import inferencecache.indexer.__main__; print([*sys.modules])"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert not [name for name in ("'numba'", "'numpy'", "'nats'") if name in modules]
