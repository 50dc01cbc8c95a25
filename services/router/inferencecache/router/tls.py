"""The gRPC port's credentials, of a certificate that is read again when its file changes [WIRE-210..215]."""

from __future__ import annotations

from pathlib import Path

import grpc

from inferencecache.core.service import CertificateFiles, CertificatePair


def certificate_files(certificate: Path, key: Path) -> CertificateFiles:
    """The files of the router's own settings. Raises `CertificateError`."""
    flags = ("--tls-cert-file", "--tls-key-file")
    return CertificateFiles(certificate, key, flags=flags, reload_event="grpc_tls_reload")


def grpc_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """Credentials whose every handshake gets the pair that is current then."""

    def refreshed() -> grpc.ServerCertificateConfiguration | None:
        pair = files.refreshed()
        return None if pair is None else _configuration(pair)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files.current),
        refreshed,  # type: ignore[arg-type] # None is legal and keeps the pair in use
        require_client_authentication=False,
    )


def _configuration(pair: CertificatePair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)])
