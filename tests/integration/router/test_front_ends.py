"""What every front end must do that serves the router's gRPC port, as a caller sees it over the network.

A front end is one more entry of `tests.support.front_ends`; the default is one that passes all of this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from inferencecache.v1alpha1.inferencecache_pb2 import (
    Ack,
    CacheEvent,
    CacheStateUpdate,
    GetCacheStateRequest,
    LookupRouteRequest,
    PrefixEntry,
    StreamEventsRequest,
    StreamMetricsRequest,
)
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub
from tests.support.certificates import CERTIFICATES, install, negotiated, shown
from tests.support.front_ends import FRONT_ENDS, Served, Start
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheAsyncStub

SERVICE: Final = "inferencecache.v1alpha1.InferenceCache"
UNARY: Final = ["RenderTemplate", "LookupRoute", "LookupPDRoute", "GetCacheState", "PublishEvent"]
LIMIT: Final = 4 * 2**20
MIB: Final = 2**20
NO_TEXT: Final = dict.fromkeys(UNARY, b"\x0a\x02\xff\xfe") | {"PublishEvent": b"\x12\x02\xff\xfe"}
"""A string field that is no UTF-8."""
BOUNDLESS: Final = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
PATIENCE_S: Final = 20.0


class Client:
    """One connection to a router."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.stub: InferenceCacheAsyncStub = InferenceCacheStub(channel)

    async def raw(self, method: str, payload: bytes, *, service: str = SERVICE, **how: Any) -> bytes:
        call: Any = self.channel.unary_unary(f"/{service}/{method}")
        return bytes(await call(payload, timeout=PATIENCE_S, **how))

    async def keys_of(self, tenant: str = "t") -> int:
        state = await self.stub.GetCacheState(GetCacheStateRequest(tenant_id=tenant, model_id="m"))
        return state.summary.total_prefixes


@pytest.fixture(params=sorted(FRONT_ENDS))
def start(request: pytest.FixtureRequest) -> Start:
    """`async with start() as front` serves a router by one front end."""
    return FRONT_ENDS[request.param]


@pytest.fixture
async def front(start: Start) -> AsyncIterator[Served]:
    async with start() as front:
        yield front


@pytest.fixture
async def client(front: Served) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(front.address, options=BOUNDLESS) as channel:
        yield Client(channel)


async def failure_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        async with asyncio.timeout(PATIENCE_S):
            await call
    assert "Traceback" not in (failed.value.details() or "")
    return failed.value


async def status_of(call: Any) -> grpc.StatusCode:
    return (await failure_of(call)).code()


async def begun(call: Any) -> Any:
    """The streaming call, once its headers have come."""
    async with asyncio.timeout(PATIENCE_S):
        await call.initial_metadata()
    return call


def update(hash_: bytes = b"p", tenant: str = "t", **more: Any) -> CacheStateUpdate:
    fields: dict[str, Any] = {
        "tenant_id": tenant,
        "model_id": "m",
        "hash_scheme": "vllm",
        "replica_id": "r1",
        "prefixes": [PrefixEntry(prefix_hash=hash_, token_count=16)],
    }
    return CacheStateUpdate(**fields | more)


# ------------------------------------------------------------------------------------------- statuses


@pytest.mark.rule("WIRE-030", "WIRE-025")
@pytest.mark.parametrize("method", [name for name in UNARY if name != "PublishEvent"])
async def test_an_empty_request_is_answered_with_ok(client: Client, method: str) -> None:
    method_call: Any = client.channel.unary_unary(f"/{SERVICE}/{method}")
    call = method_call(b"", timeout=PATIENCE_S)
    await call
    assert await call.code() is grpc.StatusCode.OK


@pytest.mark.rule("WIRE-033")
@pytest.mark.parametrize("path", [(SERVICE, "Guess"), ("guess.v1.Guess", "LookupRoute")])
async def test_what_nobody_serves_is_unimplemented(client: Client, path: tuple[str, str]) -> None:
    service, method = path
    assert await status_of(client.raw(method, b"", service=service)) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.rule("WIRE-032", "WIRE-C43")
@pytest.mark.parametrize("method", UNARY)
async def test_bytes_that_are_no_request_are_an_internal_error_that_says_which(
    client: Client, method: str
) -> None:
    failed = await failure_of(client.raw(method, NO_TEXT[method]))
    assert failed.code() is grpc.StatusCode.INTERNAL
    assert "is no valid" in (failed.details() or "")


@pytest.mark.rule("WIRE-032")
async def test_a_server_stream_whose_request_is_none_ends_as_an_internal_error(client: Client) -> None:
    call: Any = client.channel.unary_stream(f"/{SERVICE}/StreamCacheEvents")
    assert await status_of(call(b"\x0a\xff\xff\xff").read()) is grpc.StatusCode.INTERNAL


@pytest.mark.rule("WIRE-008", "WIRE-007")
async def test_unknown_fields_and_unpacked_counts_pass_through_unharmed(client: Client) -> None:
    assert await client.stub.ReportCacheState(iter([update()])) == Ack(accepted=True)
    keys = LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="vllm", block_hashes=[b"p", b"q"])
    unpacked, unknown = b"\x40\x40\x40\x10", b"\xfa\x7f\x01x"
    assert b"PREFIX_MATCH" in await client.raw("LookupRoute", keys.SerializeToString() + unpacked + unknown)


async def test_calls_at_once_on_one_connection_get_each_its_own_answer(client: Client) -> None:
    tenants = [f"tenant-{number}" for number in range(30)]
    for number, tenant in enumerate(tenants):
        hashes = [b"%d" % key for key in range(number)]
        entries = [PrefixEntry(prefix_hash=hash_, token_count=16) for hash_ in hashes]
        await client.stub.ReportCacheState(iter([update(tenant=tenant, prefixes=entries)]))
    counts = await asyncio.gather(*(client.keys_of(tenant) for tenant in tenants * 4))
    assert counts == [*range(30)] * 4


# ------------------------------------------------------------------------------- limits and encodings


@pytest.mark.rule("WIRE-031", "WIRE-200", "WIRE-C43")
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_above_4_mib_is_refused_and_one_at_the_limit_is_not(
    client: Client, compression: grpc.Compression
) -> None:
    request = LookupRouteRequest(prompt_text="x" * (LIMIT - 5))
    assert request.ByteSize() == LIMIT
    answer = await client.raw("LookupRoute", request.SerializeToString(), compression=compression)
    assert b"NO_HINT" in answer
    longer = LookupRouteRequest(prompt_text="x" * (LIMIT - 4)).SerializeToString()
    refused = client.raw("LookupRoute", longer, compression=compression)
    assert await status_of(refused) is grpc.StatusCode.RESOURCE_EXHAUSTED, "also what is small on the wire"
    assert b"NO_HINT" in await client.raw("LookupRoute", b""), "the connection goes on"


@pytest.mark.rule("WIRE-031", "WIRE-200")
async def test_one_message_of_a_stream_above_the_limit_ends_it(client: Client) -> None:
    call: Any = client.channel.stream_unary(f"/{SERVICE}/ReportCacheState")
    messages = [update().SerializeToString(), bytes(LIMIT + 1)]
    assert await status_of(call(iter(messages))) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await client.keys_of() == 1


@pytest.mark.rule("WIRE-200")
async def test_answers_have_no_limit(client: Client) -> None:
    call: Any = await begun(client.stub.StreamCacheEvents(StreamEventsRequest()))
    event = CacheEvent(type=CacheEvent.PREFIX_EVICTED, tenant_id="t", model_id="m", replica_id="r1")
    event.prefix_hash = bytes(LIMIT - event.ByteSize() - 5)
    assert event.ByteSize() == LIMIT
    assert (await client.stub.PublishEvent(event)).accepted
    async with asyncio.timeout(PATIENCE_S):
        seen = await call.read()
    call.cancel()
    assert seen.prefix_hash == event.prefix_hash
    assert seen.ByteSize() > LIMIT, "it has got a time"


# ------------------------------------------------------------------------------ deadlines and metadata


@pytest.mark.rule("WIRE-035")
async def test_a_stream_ends_with_its_deadline_and_the_connection_goes_on(client: Client) -> None:
    call: Any = client.stub.StreamCacheEvents(StreamEventsRequest(), timeout=0.3)
    assert await status_of(call.read()) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (await client.stub.LookupRoute(LookupRouteRequest())).reason_code == "NO_HINT"


@pytest.mark.rule("WIRE-035", "WIRE-081")
async def test_the_router_is_told_of_the_deadline_and_counts_what_passes_it(client: Client) -> None:
    await client.stub.LookupRoute(LookupRouteRequest())
    calls, count = "inferencecache_lookup_route_calls", "inferencecache_lookup_route_latency_seconds_count"
    names = StreamMetricsRequest(names=[calls, count])

    async def is_counted() -> bool:
        metrics: Any = client.stub.StreamMetrics(names)
        seen = False
        async with asyncio.timeout(PATIENCE_S):
            # A round begins with the calls by their reasons, and there is one call at least.
            while (sample := await metrics.read()).name != count:
                seen = seen or (sample.labels["reason_code"] == "TIMEOUT" and sample.value > 0)
        metrics.cancel()
        return seen

    request = LookupRouteRequest(token_ids=[1 << 20] * (1 << 20))
    limit_s = 0.005
    while not await is_counted():
        # How long a request takes to arrive is the machine's business: one of these limits lies between
        # its arrival and its answer.
        limit_s = limit_s * 1.4 if limit_s < 5 else 0.005
        call: Any = client.stub.LookupRoute(request, timeout=limit_s)
        assert await call.code() in {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}


@pytest.mark.rule("WIRE-024")
async def test_call_metadata_is_ignored(client: Client) -> None:
    metadata = (("authorization", "Bearer nobody"), ("tenant", "x"), ("blob-bin", bytes(range(256))))
    answer = await client.stub.LookupRoute(LookupRouteRequest(), metadata=metadata)
    assert answer.reason_code == "NO_HINT"


# ------------------------------------------------------------------------------- streams from a client


@pytest.mark.rule("WIRE-085")
async def test_a_client_stream_of_none_or_many_messages_has_one_answer(client: Client) -> None:
    assert await client.stub.ReportCacheState(iter(())) == Ack(accepted=True)
    updates = [update(b"%d" % number) for number in range(200)]
    assert await client.stub.ReportCacheState(iter(updates)) == Ack(accepted=True)
    assert await client.keys_of() == 200


@pytest.mark.rule("WIRE-085")
async def test_messages_of_a_client_stream_count_before_it_ends(client: Client) -> None:
    call: Any = client.stub.ReportCacheState()
    for number in range(3):
        await call.write(update(b"%d" % number))

        async def has_arrived(expected: int = number + 1) -> bool:
            return await client.keys_of() == expected

        await eventually(has_arrived, within_s=PATIENCE_S)
    await call.done_writing()
    assert await call == Ack(accepted=True)


@pytest.mark.rule("WIRE-034", "WIRE-086", "WIRE-032")
async def test_a_broken_message_ends_a_client_stream_and_leaves_what_came_before(client: Client) -> None:
    call: Any = client.channel.stream_unary(f"/{SERVICE}/ReportCacheState")
    messages = [update().SerializeToString(), b"\x0a\xff\xff\xff"]
    assert await status_of(call(iter(messages))) is grpc.StatusCode.INTERNAL
    assert await client.keys_of() == 1


@pytest.mark.rule("WIRE-034", "WIRE-086")
async def test_a_client_stream_that_is_cancelled_leaves_what_came_before(client: Client) -> None:
    call: Any = client.stub.ReportCacheState()
    await call.write(update())

    async def has_arrived() -> bool:
        return await client.keys_of() == 1

    await eventually(has_arrived, within_s=PATIENCE_S)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await client.keys_of() == 1


async def test_a_client_stream_can_be_refused_while_the_client_still_sends(client: Client) -> None:
    call: Any = client.stub.ReportCacheState()
    await call.write(update(tenant="x" * 256))
    failed = await failure_of(call)
    assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failed.details()


# ------------------------------------------------------------------------------- streams from a server


@pytest.mark.rule("RPC-E1", "RPC-E6", "WIRE-122")
async def test_a_server_stream_begins_before_there_is_anything_to_tell(client: Client) -> None:
    call: Any = await begun(client.stub.StreamCacheEvents(StreamEventsRequest()))
    assert (await client.stub.ReportCacheState(iter([update()]))).accepted
    async with asyncio.timeout(PATIENCE_S):
        event = await call.read()
    assert (event.type, event.prefix_hash) == (CacheEvent.PREFIX_ADDED, b"p")
    call.cancel()


@pytest.mark.rule("RPC-E7")
async def test_a_reader_that_is_too_slow_is_ended_and_others_go_on(client: Client, front: Served) -> None:
    sent = 48
    async with grpc.aio.insecure_channel(front.address, options=BOUNDLESS) as other:
        slow: Any = await begun(InferenceCacheStub(other).StreamCacheEvents(StreamEventsRequest()))
        quick: Any = await begun(client.stub.StreamCacheEvents(StreamEventsRequest()))
        producer: Any = client.stub.ReportCacheState()
        for number in range(sent):
            await producer.write(update(bytes([number]) * MIB))
            async with asyncio.timeout(PATIENCE_S):
                assert (await quick.read()).prefix_hash[0] == number
        await producer.done_writing()
        assert await producer == Ack(accepted=True)
        seen: list[int] = []
        assert await status_of(all_of(slow, seen)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert seen == [*range(len(seen))], "what it got before has no hole"
        assert len(seen) < sent
        quick.cancel()


async def all_of(call: Any, seen: list[int]) -> None:
    """Read events until the stream fails; `seen` gets the first byte of each hash."""
    while (event := await call.read()) is not grpc.aio.EOF:
        seen.append(event.prefix_hash[0])


async def test_whoever_leaves_a_server_stream_costs_the_others_nothing(client: Client) -> None:
    calls = [await begun(client.stub.StreamCacheEvents(StreamEventsRequest())) for _ in range(5)]
    for call in calls[:-1]:
        call.cancel()
    assert (await client.stub.ReportCacheState(iter([update()]))).accepted
    async with asyncio.timeout(PATIENCE_S):
        assert (await calls[-1].read()).prefix_hash == b"p"
    calls[-1].cancel()


# ------------------------------------------------------------------------------- health and reflection


@pytest.mark.rule("WIRE-220", "WIRE-C45", "OPS-06")
async def test_health_knows_the_process_and_no_service_by_name(client: Client) -> None:
    health: Any = health_pb2_grpc.HealthStub(client.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    unknown = health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
    assert await status_of(unknown) is grpc.StatusCode.NOT_FOUND
    for name, status in (("", "SERVING"), (SERVICE, "SERVICE_UNKNOWN")):
        watch = health.Watch(health_pb2.HealthCheckRequest(service=name))
        async with asyncio.timeout(PATIENCE_S):
            told = (await watch.read()).status
        assert health_pb2.HealthCheckResponse.ServingStatus.Name(told) == status
        watch.cancel()


async def reflected(channel: grpc.aio.Channel, version: str, *requests: Any) -> list[Any]:
    call: Any = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    answers = []
    for request in requests:
        # One at a time, so that only a stream both of whose sides are open at once passes.
        await call.write(request)
        answers.append(await call.read())
    await call.done_writing()
    return answers


@pytest.mark.rule("WIRE-221", "OPS-06")
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_tools_can_list_and_describe_the_services(client: Client, version: str) -> None:
    itself = f"grpc.reflection.{version}.ServerReflection"
    about = reflection_pb2.ServerReflectionRequest
    requests = (about(list_services=""), *(about(file_containing_symbol=name) for name in (SERVICE, itself)))
    async with asyncio.timeout(PATIENCE_S):
        listing, *files = await reflected(client.channel, version, *requests)
    listed = {service.name for service in listing.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health", itself} <= listed
    assert all(file.file_descriptor_response.file_descriptor_proto for file in files)


@pytest.mark.rule("WIRE-221")
async def test_reflection_can_be_turned_off(start: Start) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with start(reflection=False) as front, grpc.aio.insecure_channel(front.address) as channel:
        for version in ("v1", "v1alpha"):
            call: Any = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            )(iter([request.SerializeToString()]))
            assert await status_of(call.read()) is grpc.StatusCode.UNIMPLEMENTED


# ------------------------------------------------------------------------------------------------ TLS


@pytest.fixture
async def secure(start: Start, tmp_path: Path) -> AsyncIterator[Served]:
    """It shows the first certificate."""
    install(tmp_path, "first", "first")
    async with start(tls=(tmp_path / "tls.crt", tmp_path / "tls.key")) as front:
        yield front


def port_of(front: Served) -> int:
    return int(front.address.rpartition(":")[2])


@asynccontextmanager
async def trusting(front: Served, certificate: str) -> AsyncIterator[Client]:
    trust = grpc.ssl_channel_credentials(CERTIFICATES[certificate].encode())
    async with grpc.aio.secure_channel(f"localhost:{port_of(front)}", trust) as channel:
        yield Client(channel)


@pytest.mark.rule("WIRE-210", "WIRE-217", "OPS-19")
async def test_service_health_and_reflection_speak_tls(secure: Served) -> None:
    async with trusting(secure, "first") as client:
        assert (await client.stub.LookupRoute(LookupRouteRequest())).reason_code == "NO_HINT"
        health: Any = health_pb2_grpc.HealthStub(client.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        assert await reflected(client.channel, "v1", request)


@pytest.mark.rule("WIRE-213", "WIRE-036", "OPS-21")
async def test_the_other_posture_fails_at_the_transport(secure: Served, front: Served) -> None:
    async with grpc.aio.insecure_channel(secure.address) as channel:
        call = Client(channel).stub.LookupRoute(LookupRouteRequest())
        assert await status_of(call) is grpc.StatusCode.UNAVAILABLE
    async with trusting(front, "first") as client:
        call = client.stub.LookupRoute(LookupRouteRequest())
        assert await status_of(call) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.rule("WIRE-214", "WIRE-C44")
async def test_the_next_handshake_shows_a_newer_certificate_and_open_connections_go_on(
    secure: Served, tmp_path: Path
) -> None:
    assert await shown(port_of(secure)) == CERTIFICATES["first"]
    async with trusting(secure, "first") as client:
        await client.stub.LookupRoute(LookupRouteRequest())
        install(tmp_path, "second", "second", seconds_later=10)
        assert await shown(port_of(secure)) == CERTIFICATES["second"]
        await client.stub.LookupRoute(LookupRouteRequest())
    async with trusting(secure, "second") as client:
        await client.stub.LookupRoute(LookupRouteRequest())


@pytest.mark.rule("WIRE-215", "OPS-16")
async def test_half_written_files_leave_the_last_good_pair_in_use_until_they_are_whole(
    secure: Served, tmp_path: Path
) -> None:
    install(tmp_path, "second", "first", seconds_later=10)
    assert await shown(port_of(secure)) == CERTIFICATES["first"]
    install(tmp_path, "second", "second", seconds_later=10)
    assert await shown(port_of(secure)) == CERTIFICATES["second"]


@pytest.mark.rule("WIRE-212")
async def test_the_oldest_version_of_tls_that_is_spoken_is_1_2(secure: Served) -> None:
    port = port_of(secure)
    assert await asyncio.to_thread(negotiated, port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(negotiated, port, version)


# ------------------------------------------------------------------------------------------------ stop


@pytest.mark.rule("WIRE-202", "WIRE-036")
async def test_a_stop_ends_open_streams_and_idle_connections_and_nobody_is_served_after_it(
    client: Client, front: Served
) -> None:
    producer: Any = client.stub.ReportCacheState()
    await producer.write(update())

    async def has_arrived() -> bool:
        return await client.keys_of() == 1

    await eventually(has_arrived, within_s=PATIENCE_S)
    events: Any = await begun(client.stub.StreamCacheEvents(StreamEventsRequest()))
    metrics: Any = client.stub.StreamMetrics(StreamMetricsRequest(names=["inferencecache_server_up"]))
    async with asyncio.timeout(PATIENCE_S):
        await metrics.read()
        await front.stop()
    assert await status_of(producer) is grpc.StatusCode.UNAVAILABLE
    assert await status_of(events.read()) is grpc.StatusCode.UNAVAILABLE
    assert await status_of(last_of(metrics)) is grpc.StatusCode.UNAVAILABLE
    async with grpc.aio.insecure_channel(front.address) as channel:
        late = Client(channel).stub.LookupRoute(LookupRouteRequest())
        assert await status_of(late) is grpc.StatusCode.UNAVAILABLE


async def last_of(call: Any) -> None:
    """Read a stream until it fails."""
    while (await call.read()) is not grpc.aio.EOF:
        pass
