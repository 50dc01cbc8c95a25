"""The options of a command that asks a router over gRPC, and the connection they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
import typer

from inferencecache.cli.options import option, takes

DEFAULT_ADDRESS: Final = "127.0.0.1:9090"


class RouterTls(NamedTuple):
    """What the connection is secured with; without `is_on` it is plaintext."""

    is_on: bool = False
    ca: bytes | None = None
    server_name: str = ""


class RouterSettings(NamedTuple):
    """`host:port` of a router, and how to speak with it."""

    address: str
    tls: RouterTls = RouterTls()


TLS_OPTIONS: Final = (
    option("--router-tls", False, "Speak TLS with the router, by the authorities that this machine trusts."),
    option(
        "--router-tls-ca-file", "", "Speak TLS with the router, whose certificate one of these in PEM signed."
    ),
    option(
        "--router-tls-server-name",
        "",
        "Name in the router's certificate, where it is not the host of its address.",
    ),
)


def channel_to(settings: RouterSettings) -> grpc.aio.Channel:
    """A connection that opens with the first call."""
    if not settings.tls.is_on:
        return grpc.aio.insecure_channel(settings.address)
    name = settings.tls.server_name
    options = (("grpc.ssl_target_name_override", name),) if name else ()
    credentials = grpc.ssl_channel_credentials(settings.tls.ca)
    return grpc.aio.secure_channel(settings.address, credentials, options=options)


def tls_of(given: Mapping[str, Any]) -> RouterTls:
    """What the options say. Raises typer.BadParameter for a file that cannot be read."""
    file, name = given["router_tls_ca_file"], given["router_tls_server_name"]
    try:
        ca = Path(file).read_bytes() if file else None
    except OSError as error:
        raise typer.BadParameter(f"--router-tls-ca-file: cannot read {file}: {error.strerror}") from None
    return RouterTls(bool(given["router_tls"] or file or name), ca, name)


def _settings(given: Mapping[str, Any]) -> RouterSettings:
    return RouterSettings(given["router"], tls_of(given))


takes_router: Final = takes(
    "router", (option("--router", DEFAULT_ADDRESS, "Address of a router."), *TLS_OPTIONS), _settings
)
"""The command with the options of a router in place of its argument `router`."""
takes_router_tls: Final = takes("tls", TLS_OPTIONS, tls_of)
"""The same without an address, in place of its argument `tls`."""
