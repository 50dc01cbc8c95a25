"""Options of commands that talk to NATS."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from inferencecache.cli.nats import takes_nats
from inferencecache.core.service import NatsSettings


class Asked:
    """A command line with one command, and the settings it was called with."""

    def __init__(self) -> None:
        self.app = typer.Typer()
        self.settings: NatsSettings | None = None
        self.name = ""

        @self.app.command()
        @takes_nats
        def ask(name: Annotated[str, typer.Argument()], *, nats: NatsSettings) -> None:
            self.name, self.settings = name, nats

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        result = CliRunner().invoke(self.app, ["who", *arguments], env=environment)
        return result.exit_code, result.output


def settings_of(*arguments: str, **environment: str) -> NatsSettings:
    asked = Asked()
    code, output = asked.run(*arguments, **environment)
    assert code == 0, output
    assert asked.name == "who"
    assert asked.settings is not None
    return asked.settings


def test_a_server_on_this_machine_needs_no_option() -> None:
    assert settings_of() == NatsSettings("nats://127.0.0.1:4222")
    assert settings_of("--nats-url", "localhost:5222").servers == ["localhost:5222"]


def test_options_win_over_variables_of_the_same_name() -> None:
    made = settings_of(
        "--nats-url=tls://a:1,tls://b:2",
        INFERENCECACHE_NATS_URL="nats://other:1",
        INFERENCECACHE_NATS_CREDS_FILE="/creds",
        INFERENCECACHE_INSECURE_NATS="true",
    )
    assert made.servers == ["tls://a:1", "tls://b:2"]
    assert (made.creds_file, made.insecure) == ("/creds", True)


def test_every_kind_of_credentials_is_passed_on() -> None:
    made = settings_of(
        *("--nats-user", "u", "--nats-password", "p", "--nats-token", "t", "--nats-nkey-seed-file", "s"),
        *("--nats-tls-ca-file", "ca", "--nats-tls-cert-file", "crt", "--nats-tls-key-file", "key"),
        NATS_CREDS="text",
    )
    assert made == NatsSettings(
        "nats://127.0.0.1:4222",
        user="u",
        password="p",
        token="t",
        creds_text="text",
        nkey_seed_file="s",
        tls_ca_file="ca",
        tls_cert_file="crt",
        tls_key_file="key",
    )


def test_a_server_elsewhere_needs_credentials_or_an_insecure_word() -> None:
    code, output = Asked().run("--nats-url", "nats://example.com:4222")
    assert code == 2
    assert "no credentials for nats://example.com:4222" in output
    assert settings_of("--nats-url", "nats://example.com:4222", "--insecure-nats").insecure
    assert settings_of("--nats-url", "nats://example.com:4222", "--nats-token", "t").token == "t"
    assert settings_of("--nats-url", "nats://user:secret@example.com:4222").has_credentials


@pytest.mark.parametrize("url", ["", " ", "nats://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    code, output = Asked().run("--nats-url", url)
    assert code == 2
    assert "write nats://HOST:PORT" in output


def test_help_shows_the_address_and_names_the_rest() -> None:
    output = " ".join(CliRunner().invoke(Asked().app, ["--help"]).output.split())
    assert "INFERENCECACHE_NATS_URL" in output
    assert "--nats-creds-file" in output
