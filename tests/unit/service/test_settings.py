"""Settings: flag, environment, default; what is wrong is refused with a line that says what to write."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from inferencecache.core.service import (
    NatsSettings,
    SettingsParser,
    add_log_settings,
    add_nats_settings,
    at_least,
    duration,
    listen_address,
    nats_settings,
)

Refuse = Callable[[SettingsParser, list[str]], str]


def parser_of(environment: Mapping[str, str] | None = None) -> SettingsParser:
    return SettingsParser("example", "An example.", environment=environment or {})


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refuse:
    def refuse(parser: SettingsParser, arguments: list[str]) -> str:
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(arguments)
        assert ended.value.code == 2
        return capsys.readouterr().err

    return refuse


def settings_of(
    arguments: list[str], environment: Mapping[str, str] | None = None, **declared: object
) -> argparse.Namespace:
    parser = parser_of(environment)
    parser.setting("--count", default=3, parse=int, help="A count.")
    parser.setting("--window", default="20ms", parse=duration, help="A window.")
    parser.setting("--fast", default=False, parse=bool, help="A switch.")
    parser.setting("--mode", default="a", choices=["a", "b"], help="A choice.")
    return parser.parse_args(arguments)


def test_the_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"INFERENCECACHE_COUNT": "7", "INFERENCECACHE_WINDOW": "1s"}
    settings = settings_of(["--count=9"], environment)
    assert (settings.count, settings.window, settings.mode) == (9, 1.0, "a")


def test_a_variable_that_is_set_but_empty_counts_as_not_set() -> None:
    assert settings_of([], {"INFERENCECACHE_COUNT": ""}).count == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], False),
        (["--fast"], True),
        (["--fast=true"], True),
        (["--fast=false"], False),
        (["--fast", "false"], False),
    ],
)
def test_a_switch_may_stand_bare_or_with_a_value(arguments: list[str], expected: bool) -> None:
    assert settings_of(arguments).fast is expected


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--count=x"], {}, ["--count", "'x' is not a whole number"]),
        ([], {"INFERENCECACHE_COUNT": "x"}, ["INFERENCECACHE_COUNT", "'x' is not a whole number"]),
        (["--window=5"], {}, ["--window", "100ms"]),
        (["--mode=c"], {}, ["--mode", "a, b"]),
        ([], {"INFERENCECACHE_MODE": "c"}, ["INFERENCECACHE_MODE", "a, b"]),
        (["--fast=maybe"], {}, ["--fast", "neither true nor false"]),
        (["--unknown=1"], {}, ["--unknown"]),
        (["--coun=1"], {}, ["--coun"]),
        (["stray"], {}, ["stray"]),
    ],
)
def test_a_wrong_setting_exits_with_2_and_is_named(
    refusal: Refuse, arguments: list[str], environment: dict[str, str], words: list[str]
) -> None:
    parser = parser_of(environment)
    parser.setting("--count", default=3, parse=int, help="A count.")
    parser.setting("--window", default="20ms", parse=duration, help="A window.")
    parser.setting("--fast", default=False, parse=bool, help="A switch.")
    parser.setting("--mode", default="a", choices=["a", "b"], help="A choice.")
    text = refusal(parser, arguments)
    assert "usage: example" in text
    assert all(word in text for word in words), text


def test_a_missing_required_setting_names_flag_variable_and_an_example(refusal: Refuse) -> None:
    parser = parser_of()
    parser.setting("--model-id", default="", required=True, example="llama", help="The model.")
    text = refusal(parser, [])
    assert "--model-id=llama" in text
    assert "INFERENCECACHE_MODEL_ID=llama" in text


def test_the_help_shows_default_and_variable_of_every_setting_by_section(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = parser_of()
    parser.setting("--window", default="20ms", parse=duration, help="Collects for at most 100% of this.")
    with parser.section("engine", "Where the engine is."):
        parser.setting("--engine", default="", required=True, help="The engine.")
    parser.setting("--late", default=True, parse=bool, help="Belongs to the first section.")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "default: 20ms; environment: INFERENCECACHE_WINDOW" in text
    assert "required; environment: INFERENCECACHE_ENGINE" in text
    assert text.index("--late") < text.index("engine:") < text.index("--engine VALUE")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("10s", 10), ("1m30s", 90), ("1h", 3600), ("0", 0), ("1.5s", 1.5), ("-2s", -2)],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "10 s", "1d", "1s2", "--1s", "1e3s", "inf", "9" * 400 + "h"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="100ms, 10s or 1m30s"):
        duration(text)


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e999"])
def test_a_number_is_finite(text: str, refusal: Refuse) -> None:
    parser = parser_of()
    parser.setting("--share", default=0.5, parse=float, help="A share.")
    assert f"--share: {text} is not a finite number" in refusal(parser, [f"--share={text}"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        (":8080", ("0.0.0.0", 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9090", ("::1", 9090)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int] | None) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["8080", "host", "host:", ":x", ":70000", "::1:8080", ":-1"])
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        listen_address(text)


def test_a_whole_number_may_have_a_least_value() -> None:
    assert at_least(1)("1") == 1
    with pytest.raises(ValueError, match="the least is 1"):
        at_least(1)("0")


@pytest.mark.rule("WIRE-197", "OPS-12", "OPS-W5")
@pytest.mark.parametrize(
    ("given", "level"),
    [("info", "info"), (" WARNING ", "warn"), ("Warn", "warn"), ("", "info"), ("DEBUG", "debug")],
)
def test_log_settings_ignore_case_and_blanks(given: str, level: str) -> None:
    parser = parser_of()
    add_log_settings(parser)
    settings = parser.parse_args([f"--log-level={given}", "--log-format= Text"])
    assert (settings.log_level, settings.log_format) == (level, "text")


@pytest.mark.rule("WIRE-197", "OPS-12", "OPS-W5")
@pytest.mark.parametrize("argument", ["--log-level=loud", "--log-format=xml"])
def test_an_unknown_log_setting_exits_with_2(refusal: Refuse, argument: str) -> None:
    parser = parser_of()
    add_log_settings(parser)
    assert argument.partition("=")[2] in refusal(parser, [argument])


def nats_parser(environment: Mapping[str, str] | None = None, *, required: bool = True) -> SettingsParser:
    parser = parser_of(environment)
    add_nats_settings(parser, required=required, default_url="" if required else "nats://127.0.0.1:4222")
    return parser


def test_a_process_without_a_nats_address_says_what_to_set(refusal: Refuse) -> None:
    text = refusal(nats_parser(), ["--insecure-nats"])
    assert "--nats-url=nats://127.0.0.1:4222" in text
    assert "INFERENCECACHE_NATS_URL" in text


def test_a_process_with_neither_credentials_nor_insecure_nats_refuses_to_start(refusal: Refuse) -> None:
    text = refusal(nats_parser(), ["--nats-url=nats://n:4222"])
    assert "--nats-creds-file" in text
    assert "--insecure-nats" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["--insecure-nats"],
        ["--nats-user=u", "--nats-password=p"],
        ["--nats-token=t"],
        ["--nats-url=nats://u:p@n:4222"],
    ],
)
def test_credentials_or_consent_are_enough(arguments: list[str]) -> None:
    nats_parser().parse_args(["--nats-url=nats://n:4222", *arguments])


def test_credentials_may_come_from_files_or_as_text(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.write_text("SU")
    url = "--nats-url=nats://n:4222"
    by_file = nats_settings(nats_parser().parse_args([url, f"--nats-nkey-seed-file={seed}"]))
    by_text = nats_settings(nats_parser({"NATS_CREDS": "text"}).parse_args([url]))
    assert by_file.nkey_seed_file == str(seed)
    assert by_text.creds_text == "text"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nats-creds-file=/absent"], "--nats-creds-file"),
        (["--nats-user=u"], "--nats-password"),
        (["--nats-tls-cert-file=/absent"], "--nats-tls-key-file"),
        (["--nats-token=t", "--nats-user=u", "--nats-password=p"], "exclude each other"),
        (["--nats-url=http://n"], "nats://HOST:PORT"),
    ],
)
def test_nats_settings_that_cannot_work_are_refused(
    refusal: Refuse, arguments: list[str], words: str
) -> None:
    assert words in refusal(nats_parser(), ["--nats-url=nats://n:4222", "--insecure-nats", *arguments])


@pytest.mark.rule("SUB-165", "SUB-177")
def test_the_subscriber_starts_without_any_nats_setting() -> None:
    settings = nats_settings(nats_parser(required=False).parse_args([]))
    assert settings.url == "nats://127.0.0.1:4222"
    assert not settings.has_credentials
    nats_parser(required=False).parse_args(["--nats-creds-file=/absent"])


def test_secrets_never_show() -> None:
    settings = NatsSettings(
        url="nats://eve:hush@one:4222,tls://hush@two:4222",
        user="u",
        password="hush",
        token="hush",
        creds_text="hush",
    )
    assert "hush" not in f"{settings!r} {settings} {settings.__rich_repr__()} {settings.address}"
    assert settings.address == "nats://one:4222,tls://two:4222"
    assert settings.servers == ["nats://eve:hush@one:4222", "tls://hush@two:4222"]
