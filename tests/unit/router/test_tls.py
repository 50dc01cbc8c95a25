"""The certificate of the gRPC port."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from inferencecache.core.service import CertificateError, CertificateFiles
from inferencecache.router.tls import certificate_files, grpc_credentials
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.certificates import CERTIFICATES, install, negotiated, shown
from tests.support.router import served_router


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    install(tmp_path, "first", "first")
    return certificate_files(tmp_path / "tls.crt", tmp_path / "tls.key")


@pytest.mark.rule("WIRE-C44", "WIRE-211")
@pytest.mark.parametrize("broken", ["missing certificate", "missing key", "not PEM", "not a pair"])
def test_a_pair_that_cannot_be_used_is_refused_with_both_flags_named(tmp_path: Path, broken: str) -> None:
    install(tmp_path, "first", "second" if broken == "not a pair" else "first")
    match broken:
        case "missing certificate":
            (tmp_path / "tls.crt").unlink()
        case "missing key":
            (tmp_path / "tls.key").unlink()
        case "not PEM":
            (tmp_path / "tls.crt").write_text("no certificate")
    with pytest.raises(CertificateError, match=r"--tls-cert-file=.* --tls-key-file="):
        certificate_files(tmp_path / "tls.crt", tmp_path / "tls.key")


@pytest.mark.rule("WIRE-C44", "WIRE-214", "WIRE-213", "WIRE-036", "OPS-19", "OPS-21")
async def test_the_next_handshake_shows_a_newer_certificate_and_open_connections_go_on(
    tmp_path: Path, files: CertificateFiles
) -> None:
    async with served_router(credentials=grpc_credentials(files)) as router:
        port = int(router.server.address.rpartition(":")[2])
        assert await shown(port) == CERTIFICATES["first"]
        trust = grpc.ssl_channel_credentials(CERTIFICATES["first"].encode())
        async with grpc.aio.secure_channel(f"localhost:{port}", trust) as channel:
            stub = InferenceCacheStub(channel)
            assert (await stub.LookupRoute(LookupRouteRequest())).reason_code == "NO_HINT"
            install(tmp_path, "second", "second", seconds_later=10)
            assert await shown(port) == CERTIFICATES["second"]
            assert (await stub.LookupRoute(LookupRouteRequest())).reason_code == "NO_HINT"
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await router.stub.LookupRoute(LookupRouteRequest())
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE, "a plaintext client of a TLS port"


@pytest.mark.rule("WIRE-215", "OPS-16", "OPS-19")
def test_half_written_files_leave_the_last_good_pair_in_use_until_they_are_whole(
    tmp_path: Path, files: CertificateFiles
) -> None:
    install(tmp_path, "second", "first", seconds_later=10)
    assert files.refreshed() is None
    install(tmp_path, "second", "second", seconds_later=10)
    assert files.refreshed() is not None
    assert files.refreshed() is None


@pytest.mark.rule("WIRE-214", "WIRE-215")
def test_only_a_later_time_of_the_certificate_file_counts(tmp_path: Path, files: CertificateFiles) -> None:
    assert files.refreshed() is None
    install(tmp_path, "second", "second")
    assert files.refreshed() is None, "the same time"
    install(tmp_path, "first", "first")
    os.utime(tmp_path / "tls.key", (1_800_000_000,) * 2)
    assert files.refreshed() is None, "a newer key alone"
    (tmp_path / "tls.crt").unlink()
    assert files.refreshed() is None, "no time to be read"


@pytest.mark.rule("WIRE-212")
async def test_the_oldest_version_that_is_spoken_is_1_2(files: CertificateFiles) -> None:
    async with served_router(credentials=grpc_credentials(files)) as router:
        port = int(router.server.address.rpartition(":")[2])
        assert await asyncio.to_thread(negotiated, port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(negotiated, port, version)


@pytest.mark.rule("WIRE-217")
async def test_health_and_reflection_speak_tls_as_the_service_does(files: CertificateFiles) -> None:
    async with served_router(credentials=grpc_credentials(files)) as router:
        port = router.server.address.rpartition(":")[2]
        trust = grpc.ssl_channel_credentials(CERTIFICATES["first"].encode())
        async with grpc.aio.secure_channel(f"localhost:{port}", trust) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            call: Any = channel.stream_stream(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            )
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            assert [answer async for answer in call(iter([request]))]
        plain: Any = health_pb2_grpc.HealthStub(router.channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await plain.Check(health_pb2.HealthCheckRequest())
