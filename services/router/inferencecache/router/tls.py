"""The gRPC port's certificate, read again when its file changes [WIRE-210..215]."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from inferencecache.core.service import get_logger

log = get_logger("tls")


class CertificateError(Exception):
    """The files cannot be read, hold no certificate and key, or these do not belong together."""

    def __init__(self, certificate: Path, key: Path, reason: str) -> None:
        super().__init__(f"--tls-cert-file={certificate} --tls-key-file={key}: {reason}")
        self.certificate = certificate
        self.key = key
        self.reason = reason


class CertificateFiles:
    """A certificate (chain) and its key, both PEM, as they were when last read successfully."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the pair. Raises `CertificateError`."""
        self._certificate = certificate
        self._key = key
        self._time_ns = self._modified_ns() or 0
        self._pair = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials whose every handshake gets the pair that is current then."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._pair),
            self.refreshed,  # type: ignore[arg-type] # None is legal and keeps the pair in use
            require_client_authentication=False,
        )

    def refreshed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new pair if the certificate's file is newer than the loaded one, else `None`.

        Called by gRPC at each handshake. What cannot be read leaves the last good pair in use.
        """
        time_ns = self._modified_ns()
        if time_ns is None or time_ns <= self._time_ns:
            return None
        try:
            self._pair = self._read()
        except CertificateError as error:
            log.error("grpc_tls_reload", msg=str(error))  # noqa: TRY400 - the message says all
            return None
        # This time was taken before the content was read: a write in between is noticed next time.
        self._time_ns = time_ns
        return _configuration(self._pair)

    def _modified_ns(self) -> int | None:
        try:
            return self._certificate.stat().st_mtime_ns
        except OSError:
            return None

    def _read(self) -> tuple[bytes, bytes]:
        try:
            pair = self._certificate.read_bytes(), self._key.read_bytes()
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self._certificate, self._key, password=_no_password
            )
            unchanged = pair == (self._certificate.read_bytes(), self._key.read_bytes())
        except (OSError, ValueError) as error:
            raise CertificateError(self._certificate, self._key, str(error)) from error
        if not unchanged:
            raise CertificateError(self._certificate, self._key, "the files are being written")
        return pair


def _configuration(pair: tuple[bytes, bytes]) -> grpc.ServerCertificateConfiguration:
    certificate, key = pair
    return grpc.ssl_server_certificate_configuration([(key, certificate)])


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase")
