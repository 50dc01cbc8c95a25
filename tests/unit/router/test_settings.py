"""The router's command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inferencecache.router.settings import RouterSettings, read_settings

NATS = ["--nats-url=nats://127.0.0.1:4222", "--insecure-nats"]


def settings(*arguments: str) -> RouterSettings:
    return read_settings([*NATS, *arguments], {})


@pytest.mark.rule(
    "WIRE-190",
    "WIRE-191",
    "WIRE-193",
    "WIRE-194",
    "WIRE-195",
    "WIRE-196",
    "WIRE-197",
    "WIRE-210",
    "OPS-07",
    "OPS-11",
)
def test_defaults_are_those_of_the_contract() -> None:
    assert settings() == RouterSettings(
        nats=settings().nats,
        log_format="json",
        log_level="info",
        grpc_address=("0.0.0.0", 9090),
        http_address=("0.0.0.0", 8080),
        grpc_reflection=True,
        tls_files=None,
        block_size=16,
        ready_timeout_s=30.0,
        models_dir=None,
    )
    assert settings("--tokenizer-models-dir=models").models_dir == Path("models")


@pytest.mark.rule("WIRE-159")
@pytest.mark.parametrize(("text", "size"), [("32", 32), ("0", 16), ("-4", 16)])
def test_a_block_size_that_is_not_positive_means_the_default(text: str, size: int) -> None:
    assert settings(f"--engine-block-size={text}").block_size == size


@pytest.mark.rule("WIRE-C44", "WIRE-210", "OPS-W4")
@pytest.mark.parametrize("flag", ["--tls-cert-file=a.pem", "--tls-key-file=a.pem"])
def test_one_tls_file_without_the_other_ends_the_process_with_2(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        settings(flag)
    assert stopped.value.code == 2
    assert "--tls-cert-file and --tls-key-file must both be set or both be empty" in capsys.readouterr().err


def test_both_tls_files_are_taken_as_they_are() -> None:
    files = settings("--tls-cert-file=a.pem", "--tls-key-file=b.pem").tls_files
    assert files == (Path("a.pem"), Path("b.pem"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--nats-url"),
        (["--nats-url=nats://localhost"], "--insecure-nats"),
        ([*NATS, "--grpc-bind-address="], "HOST:PORT"),
        ([*NATS, "--ready-timeout=30"], "30s"),
        ([*NATS, "--engine-block-size=big"], "'big'"),
        ([*NATS, "--log-level=loud"], "loud"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_set(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        read_settings(arguments, {})
    assert stopped.value.code == 2
    assert named in capsys.readouterr().err


def test_help_shows_every_flag_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        read_settings(["--help"], {})
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--grpc-bind-address", "--tls-cert-file", "--engine-block-size", "--ready-timeout"):
        assert flag in text
        assert "INFERENCECACHE_" + flag.removeprefix("--").replace("-", "_").upper() in text


def test_the_environment_counts_when_no_flag_is_given() -> None:
    environment = {
        "INFERENCECACHE_NATS_URL": "nats://nats:4222",
        "INFERENCECACHE_INSECURE_NATS": "true",
        "INFERENCECACHE_GRPC_BIND_ADDRESS": "127.0.0.1:7000",
    }
    read = read_settings([], environment)
    assert (read.nats.url, read.grpc_address) == ("nats://nats:4222", ("127.0.0.1", 7000))


def test_a_wrong_flag_is_told_before_anything_slow_is_imported() -> None:
    code = "import sys; import inferencecache.router.__main__; print([*sys.modules])"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert not [name for name in ("'numba'", "'numpy'", "'nats'", "'grpc'") if name in modules]
