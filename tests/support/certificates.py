"""Certificates for tests: `tests/data/tls` holds two self-signed pairs for localhost."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import warnings
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parents[1] / "data" / "tls"
CERTIFICATES: Final = {name: (DATA / f"{name}.crt").read_text() for name in ("first", "second")}


def install(folder: Path, certificate: str, key: str, seconds_later: int = 0) -> None:
    """Put a pair in place, as tls.crt and tls.key, with a file time of its own."""
    for name, source in (("tls.crt", f"{certificate}.crt"), ("tls.key", f"{key}.key")):
        shutil.copyfile(DATA / source, folder / name)
        os.utime(folder / name, (1_700_000_000 + seconds_later,) * 2)


async def shown(port: int) -> str:
    """The certificate that a new handshake shows."""
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


def negotiated(port: int, version: ssl.TLSVersion) -> str | None:
    """The version that a handshake ends with that offers `version` as its highest."""
    context = ssl.create_default_context(cadata=CERTIFICATES["first"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return secure.version()
