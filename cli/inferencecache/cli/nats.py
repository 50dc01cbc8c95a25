"""The options of a command that talks to NATS: those of the services, with the same variables.

A command takes an argument `nats` and is decorated with `takes_nats`; whoever runs it gives the usual
options and gets the usual refusal of a server that asks for no credentials, except on this machine.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

import typer

from inferencecache.core.service import NatsSettings

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
_PREFIX: Final = "INFERENCECACHE_"
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")

_Result = TypeVar("_Result")


def _option(flag: str, default: str | bool, help: str = "") -> inspect.Parameter:
    variable = _PREFIX + flag.removeprefix("--").replace("-", "_").upper()
    name = flag.removeprefix("--").replace("-", "_")
    declared = typer.Option(flag, envvar=variable, help=help, hidden=not help, show_default=bool(default))
    annotation: Any = Annotated[bool, declared] if isinstance(default, bool) else Annotated[str, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_OPTIONS: Final = (
    _option(
        "--nats-url",
        DEFAULT_URL,
        "Address of the NATS servers. Credentials and TLS are given as to the services: --nats-creds-file, "
        "--nats-user with --nats-password, --nats-token, --nats-nkey-seed-file, --nats-tls-ca-file, "
        "--nats-tls-cert-file with --nats-tls-key-file, or their variables INFERENCECACHE_NATS_….",
    ),
    _option(
        "--insecure-nats",
        False,
        "Accept a server without authentication; on this machine it is accepted anyway.",
    ),
    *(
        _option(f"--nats-{name}", "")
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


def takes_nats(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """The command with the options of a NATS connection in place of its argument `nats`."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "nats"]

    @functools.wraps(command)
    def with_options(**arguments: Any) -> _Result:
        given = {option.name: arguments.pop(option.name) for option in _OPTIONS}
        return command(**arguments, nats=_settings(given))

    with_options.__signature__ = signature.replace(  # type: ignore[attr-defined] # what inspect reads
        parameters=[*own, *_OPTIONS]
    )
    return with_options


def _settings(given: dict[str, Any]) -> NatsSettings:
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
