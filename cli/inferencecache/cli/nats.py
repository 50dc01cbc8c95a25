"""The options of a command that talks to NATS: those of the services, with the same variables.

A command takes an argument `nats` and is decorated with `takes_nats`; whoever runs it gives the usual
options and gets the usual refusal of a server that asks for no credentials, except on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import typer

from inferencecache.cli.options import option, takes
from inferencecache.core.service import NatsSettings

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")

_OPTIONS: Final = (
    option(
        "--nats-url",
        DEFAULT_URL,
        "Address of the NATS servers. Credentials and TLS are given as to the services: --nats-creds-file, "
        "--nats-user with --nats-password, --nats-token, --nats-nkey-seed-file, --nats-tls-ca-file, "
        "--nats-tls-cert-file with --nats-tls-key-file, or their variables INFERENCECACHE_NATS_….",
    ),
    option(
        "--insecure-nats",
        False,
        "Accept a server without authentication; on this machine it is accepted anyway.",
    ),
    *(
        option(f"--nats-{name}", "")
        for name in (
            "creds-file",
            "user",
            "password",
            "token",
            "nkey-seed-file",
            "tls-ca-file",
            "tls-cert-file",
            "tls-key-file",
        )
    ),
)


def _settings(given: Mapping[str, Any]) -> NatsSettings:
    fields = {name.removeprefix("nats_"): value for name, value in given.items()}
    settings = NatsSettings(
        **{"insecure" if name == "insecure_nats" else name: value for name, value in fields.items()},
        creds_text=os.environ.get("NATS_CREDS", ""),
    )
    hosts = [
        urlsplit(server if "://" in server else f"nats://{server}").hostname for server in settings.servers
    ]
    if not hosts or None in hosts:
        raise typer.BadParameter("--nats-url: write nats://HOST:PORT, several with commas")
    if not (settings.insecure or settings.has_credentials or all(host in _LOCAL for host in hosts)):
        raise typer.BadParameter(
            f"no credentials for {settings.address}; give --nats-creds-file or another kind, or accept a "
            "server without authentication with --insecure-nats"
        )
    return settings


takes_nats: Final = takes("nats", _OPTIONS, _settings)
"""The command with the options of a NATS connection in place of its argument `nats`."""
