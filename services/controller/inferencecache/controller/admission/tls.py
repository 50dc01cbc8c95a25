"""The webhooks' side of TLS: from 1.2 up, with the certificate that is current at each handshake."""

from __future__ import annotations

import ssl
from typing import Any

from inferencecache.core.service import CertificateFiles


def tls_context(files: CertificateFiles) -> ssl.SSLContext:
    """A context for a listener that never has to be opened anew."""

    def take_current(handshake: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: Any) -> None:
        files.refreshed()
        handshake.context = files.current.context

    context = files.current.context
    context.sni_callback = take_current
    return context
