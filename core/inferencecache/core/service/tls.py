"""A certificate and its key in files, read again when the certificate's file changes [WIRE-210..215]."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from inferencecache.core.service.logs import get_logger

log = get_logger("tls")


class CertificateError(Exception):
    """The files cannot be read, hold no certificate and key, or these do not belong together."""

    def __init__(self, certificate: Path, key: Path, reason: str, flags: tuple[str, str]) -> None:
        super().__init__(f"{flags[0]}={certificate} {flags[1]}={key}: {reason}")
        self.certificate = certificate
        self.key = key
        self.reason = reason


class CertificatePair(NamedTuple):
    """A certificate (chain) and its key as PEM, and a server's context that shows them, from TLS 1.2 up."""

    certificate: bytes
    key: bytes
    context: ssl.SSLContext


class CertificateFiles:
    """A certificate (chain) and its key, both PEM, as they were when last read successfully.

    `flags` are the settings that name the files; `reload_event` is logged when a new pair cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, *, flags: tuple[str, str], reload_event: str) -> None:
        """Read the pair. Raises `CertificateError`."""
        self._certificate = certificate
        self._key = key
        self._flags = flags
        self._reload_event = reload_event
        self._time_ns = self._modified_ns() or 0
        self.current = self._read()

    def refreshed(self) -> CertificatePair | None:
        """The new pair if the certificate's file is newer than the loaded one, else `None`.

        To be called at each handshake. What cannot be read leaves the last good pair in use.
        """
        time_ns = self._modified_ns()
        if time_ns is None or time_ns <= self._time_ns:
            return None
        try:
            self.current = self._read()
        except CertificateError as error:
            log.error(self._reload_event, msg=str(error))  # noqa: TRY400 - the message says all
            return None
        # This time was taken before the content was read: a write in between is noticed next time.
        self._time_ns = time_ns
        return self.current

    def _modified_ns(self) -> int | None:
        try:
            return self._certificate.stat().st_mtime_ns
        except OSError:
            return None

    def _read(self) -> CertificatePair:
        try:
            before = self._contents()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            unchanged = before == self._contents()
        except (OSError, ValueError) as error:
            raise self._error(str(error)) from error
        if not unchanged:
            raise self._error("the files are being written")
        return CertificatePair(*before, context)

    def _contents(self) -> tuple[bytes, bytes]:
        return self._certificate.read_bytes(), self._key.read_bytes()

    def _error(self, reason: str) -> CertificateError:
        return CertificateError(self._certificate, self._key, reason, self._flags)


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase")
