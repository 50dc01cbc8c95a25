"""The endpoint picker over gRPC, as a proxy uses it, at a router whose log is folded in place."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from inferencecache.core.gateway import Endpoint
from inferencecache.core.gateway.models import ModelNames, model_names
from inferencecache.extproc import external_processor_pb2 as pb
from inferencecache.extproc.external_processor_pb2_grpc import ExternalProcessorStub
from inferencecache.router.gateway.sources import Tell
from inferencecache.router.tls import certificate_files, grpc_credentials
from inferencecache.router.tokenizing import Tokenizing
from tests.support.endpoints import endpoint
from tests.support.gateway import MODEL, TENANT, Fixed, Picker, served_picker
from tests.support.waiting import eventually

A, B, C = (endpoint(f"10.0.0.{number}:8000", name) for number, name in enumerate("abc", 1))
PROMPT = list(range(64))
DEADLINE_S = 10.0
TLS = Path(__file__).parents[2] / "data" / "tls"
_Stream = grpc.aio.StreamStreamCall[pb.ProcessingRequest, pb.ProcessingResponse]


class Picked(NamedTuple):
    """What a proxy is told: addresses in order, or a status to answer itself."""

    addresses: list[str]
    status: int = 0


class Gateway:
    """A served picker, and a proxy's side of it."""

    def __init__(self, picker: Picker) -> None:
        self.router = picker.router
        self.report, self.picks, self.tell = picker.report, picker.picks, picker.tell
        self.channel = grpc.aio.insecure_channel(picker.address)
        self.stub = ExternalProcessorStub(self.channel)

    async def pick(self, body: Any = None, **request: Any) -> Picked:
        """One request from its headers to its pick, and its end."""
        async with self.visit(body, **request) as (_, picked):
            return picked

    @asynccontextmanager
    async def visit(
        self,
        body: Any = None,
        *,
        path: str = "/v1/completions",
        headers: dict[str, str] | None = None,
        subset: list[str] | None = None,
    ) -> AsyncIterator[tuple[_Stream, Picked]]:
        """A request that goes on while inside."""
        stream: _Stream = self.stub.Process(timeout=DEADLINE_S)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        message = pb.ProcessingRequest(
            protocol_config=pb.ProtocolConfiguration(request_body_mode=pb.BUFFERED)
        )
        message.request_headers.headers.headers.extend(
            pb.HeaderValue(key=key, raw_value=value.encode())
            for key, value in {":path": path, **(headers or {})}.items()
        )
        if subset is not None:
            hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
            hint.update({"x-gateway-destination-endpoint-subset": subset})
        await stream.write(message)
        assert (await read(stream)).WhichOneof("response") == "request_headers"
        await stream.write(pb.ProcessingRequest(request_body=pb.HttpBody(body=content, end_of_stream=True)))
        yield stream, _picked(await read(stream))
        await stream.done_writing()
        assert await stream.read() == grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def read(stream: _Stream) -> pb.ProcessingResponse:
    response = await stream.read()
    assert isinstance(response, pb.ProcessingResponse), response
    return response


def _picked(response: pb.ProcessingResponse) -> Picked:
    if response.HasField("immediate_response"):
        return Picked([], response.immediate_response.status.code)
    set_headers = response.request_body.response.header_mutation.set_headers
    return Picked(set_headers[0].header.raw_value.decode().split(",") if set_headers else [])


async def answer(stream: _Stream, status: int, served: str = "") -> None:
    """The engine's answer begins."""
    message = pb.ProcessingRequest()
    message.response_headers.headers.headers.add(key=":status", raw_value=str(status).encode())
    if served:
        told = message.metadata_context.filter_metadata["envoy.lb"]
        told.update({"x-gateway-destination-endpoint-served": served})
    await stream.write(message)
    assert (await read(stream)).WhichOneof("response") == "response_headers"


@asynccontextmanager
async def gateway(endpoints: Sequence[Endpoint] = (A, B, C), **settings: Any) -> AsyncIterator[Gateway]:
    async with served_picker(endpoints, **settings) as picker:
        served = Gateway(picker)
        try:
            yield served
        finally:
            await served.channel.close()


def completion(prompt: Any = PROMPT, model: str = MODEL, **fields: Any) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, **fields}


async def test_a_prompt_goes_to_who_holds_most_of_it_and_others_are_named_behind() -> None:
    async with gateway() as served:
        await served.report("b", PROMPT)
        picked = await served.pick(completion())
        assert picked.addresses[0] == B.address
        assert set(picked.addresses[1:]) == {A.address, C.address}
        assert served.picks("PREFIX_MATCH") == 1


async def test_a_replica_that_is_gone_or_not_ready_is_never_picked() -> None:
    async with gateway([A, B._replace(is_ready=False)]) as served:
        await served.report("b", PROMPT)
        await served.report("unknown", PROMPT)
        assert (await served.pick(completion())).addresses == [A.address]
        served.tell(C)
        assert (await served.pick(completion())).addresses == [C.address]


async def test_a_source_that_breaks_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Fixed.run
    tried = 0

    async def breaks_once(source: Fixed, tell: Tell) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise KeyError("port")
        await run(source, tell)

    monkeypatch.setattr(Fixed, "run", breaks_once)
    monkeypatch.setattr("inferencecache.router.gateway.port.SOURCE_RETRY_S", 0.0)
    with capture_logs() as logs:
        async with gateway() as served:
            assert len((await served.pick(completion())).addresses) == 3
    assert "endpoints_not_followed" in {line["event"] for line in logs}


@pytest.mark.parametrize(
    ("body", "path", "reason"),
    [
        (b"{", "/v1/completions", "BODY_UNREADABLE"),
        (completion(cache_salt="s"), "/v1/completions", "UNSUPPORTED_CONTENT"),
        (completion("text"), "/v1/completions", "TOKENIZING_NO_TOKENIZER"),
        ({"model": "m", "messages": [{"role": "user", "content": "a"}]}, "/v1/chat/completions", None),
        (completion(model="unknown"), "/v1/completions", "UNKNOWN_MODEL"),
        (completion([1, 2]), "/v1/completions", "NO_HINT"),
        ({"input": "a"}, "/v1/embeddings", "NOT_A_PROMPT"),
        (completion([1] * 2_000_000), "/v1/completions", "BODY_TOO_LARGE"),
    ],
)
async def test_whatever_cannot_be_looked_up_goes_to_an_endpoint_all_the_same(
    body: Any, path: str, reason: str | None
) -> None:
    async with gateway() as served:
        await served.report("a", PROMPT)
        assert len((await served.pick(body, path=path)).addresses) == 3
        assert served.picks(reason or "TOKENIZING_NO_TOKENIZER") == 1


async def test_without_a_hint_requests_go_where_least_was_assigned() -> None:
    async with gateway() as served:
        fillers = [completion(list(range(start, start + 4000))) for start in (0, 5_000, 10_000)]
        firsts = [(await served.pick(body)).addresses[0] for body in fillers]
        assert set(firsts) == {A.address, B.address, C.address}


async def test_a_router_hears_what_another_one_assigned() -> None:
    async with gateway() as served:
        work = served.router.log.work
        assert work is not None
        await served.report("a", PROMPT)
        await served.pick(completion(list(range(100, 4100))))
        ((tenant, model, _, tokens),) = work.take_unshared()
        assert (tenant, model, tokens) == (TENANT, MODEL, 4000)


async def test_names_that_callers_made_up_are_no_accounts_of_their_own() -> None:
    async with gateway(tenant_header="x-tenant") as served:
        work = served.router.log.work
        assert work is not None
        for number in range(9):
            tokens = list(range(5000 * number, 5000 * number + 4000))
            await served.pick(completion(tokens, f"made-up-{number}"), headers={"x-tenant": f"t{number}"})
        accounts = {(item.tenant, item.model) for item in work.everything(time.monotonic())}
        assert accounts == {("", "")}
        replicas = [item.replica for item in work.take_unshared()]
        assert sorted(replicas) == ["a", "b", "c"], "and all the same they go where least was assigned"


async def test_an_endpoint_that_refuses_is_passed_over_and_spared_its_work() -> None:
    async with gateway() as served:
        await served.report("b", PROMPT)
        work = served.router.log.work
        assert work is not None
        async with served.visit(completion()) as (stream, picked):
            assert picked.addresses[0] == B.address
            await answer(stream, 429, B.address)
        assert sum(item.tokens for item in work.take_unshared()) == pytest.approx(0, abs=1)
        second = await served.pick(completion())
        assert second.addresses[0] != B.address
        assert second.addresses[-1] == B.address
        async with served.visit(completion(), subset=[B.address]) as (stream, picked):
            assert picked.addresses == [B.address], "a proxy's subset comes before a refusal"
            await answer(stream, 200, B.address)
        assert (await served.pick(completion())).addresses[0] == B.address


@pytest.mark.parametrize("status", [400, 404, 413, 500, 504])
async def test_a_request_that_failed_leaves_no_work_and_no_refusal(status: int) -> None:
    async with gateway([A, B]) as served:
        await served.report("b", PROMPT)
        work = served.router.log.work
        assert work is not None
        async with served.visit(completion(list(range(1000, 200_000))), subset=[B.address]) as (stream, _):
            assert work.of(TENANT, MODEL, time.monotonic())[B.replica] > 100_000
            await answer(stream, status, B.address)
            left = work.of(TENANT, MODEL, time.monotonic()).get(B.replica, 0.0)
            assert left < 10_000, "what is acknowledged is heard"
        assert served.router.metric("inferencecache_gateway_endpoints_refusing") == 0


async def test_who_served_tells_that_those_before_it_could_not() -> None:
    async with gateway() as served:
        await served.report("b", PROMPT)
        async with served.visit(completion()) as (stream, picked):
            await answer(stream, 200, picked.addresses[1])
        again = await served.pick(completion())
        assert again.addresses[-1] == B.address


async def test_bodies_that_never_end_are_held_up_to_a_limit_and_then_sent_on() -> None:
    async with gateway(bodies_limit=2500) as served, AsyncExitStack() as stack:

        async def begin() -> _Stream:
            """A request of which 1000 bytes have come."""
            stream: _Stream = served.stub.Process(timeout=DEADLINE_S)
            stack.callback(stream.cancel)
            config = pb.ProtocolConfiguration(request_body_mode=pb.FULL_DUPLEX_STREAMED)
            message = pb.ProcessingRequest(protocol_config=config)
            message.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/completions")
            await stream.write(message)
            await stream.write(pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x" * 1000)))
            return stream

        async def was_sent_on(stream: _Stream) -> None:
            """Its headers with a destination, and what came of its body."""
            first, second = await read(stream), await read(stream)
            assert first.request_headers.response.header_mutation.set_headers
            assert second.request_body.response.body_mutation.streamed_response.body == b"x" * 1000

        streams = [await begin() for _ in range(3)]
        waits = [asyncio.ensure_future(was_sent_on(stream)) for stream in streams]
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(pending)) == (1, 2)
        assert served.picks("BODY_TOO_LARGE") == 1
        for stream, wait in zip(streams, waits, strict=True):
            if wait in pending:
                await stream.write(pb.ProcessingRequest(request_body=pb.HttpBody(end_of_stream=True)))
        await asyncio.gather(*waits)
        assert served.picks("BODY_UNREADABLE") == 2
        later = await begin()
        await later.write(pb.ProcessingRequest(request_body=pb.HttpBody(end_of_stream=True)))
        await was_sent_on(later)
        assert served.picks("BODY_UNREADABLE") == 3, "what was sent on counts no more"


async def test_an_open_request_keeps_its_endpoint_busy_and_its_end_does_not_count_twice() -> None:
    async with gateway() as served:
        async with served.visit(completion()) as (stream, picked):
            assert served.router.metric("inferencecache_gateway_open_requests") == 1
            await answer(stream, 200, picked.addresses[0])
            assert served.router.metric("inferencecache_gateway_open_requests") == 1
        await eventually(lambda: served.router.metric("inferencecache_gateway_open_requests") == 0)


async def test_a_stream_that_begins_a_second_request_is_chosen_for_once() -> None:
    async with gateway() as served:
        stream: _Stream = served.stub.Process(timeout=DEADLINE_S)
        message = pb.ProcessingRequest()
        message.request_headers.end_of_stream = True
        await stream.write(message)
        await stream.write(message)
        await read(stream)
        await stream.done_writing()
        assert await stream.read() == grpc.aio.EOF
        assert served.router.metric("inferencecache_gateway_open_requests") == 0


async def test_a_request_whose_proxy_has_gone_is_over() -> None:
    async with gateway() as served:
        with suppress(asyncio.CancelledError):
            async with served.visit(completion()) as (stream, _):
                assert served.router.metric("inferencecache_gateway_open_requests") == 1
                stream.cancel()
        await eventually(lambda: served.router.metric("inferencecache_gateway_open_requests") == 0)


async def test_what_an_endpoint_did_that_is_gone_says_nothing_of_its_successor() -> None:
    async with gateway([B]) as served:
        async with served.visit(completion()) as (stream, _):
            served.tell(endpoint(B.address, "successor", "another"))
            await answer(stream, 503)
        assert served.router.metric("inferencecache_gateway_endpoints_refusing") == 0


async def test_a_subset_limits_the_pick_and_an_unusable_one_is_refused() -> None:
    async with gateway() as served:
        await served.report("b", PROMPT)
        assert (await served.pick(completion(), subset=[A.address, "10.9.9.9:1"])).addresses == [A.address]
        assert await served.pick(completion(), subset=["10.9.9.9:1"]) == Picked([], 503)
        assert await served.pick(completion(), subset=[]) == Picked([], 503)


@pytest.mark.parametrize(("refuses", "expected"), [(False, Picked([])), (True, Picked([], 503))])
async def test_without_an_endpoint_the_proxy_goes_on_or_refuses_as_set(
    refuses: bool, expected: Picked
) -> None:
    async with gateway([], refuses=refuses) as served:
        assert await served.pick(completion()) == expected


async def test_an_adapter_has_its_own_blocks() -> None:
    names = ModelNames(model_names("sql=m:sql-v2"))
    async with gateway(names=names) as served:
        await served.report("a", PROMPT)
        await served.report("b", PROMPT, adapter_id="sql-v2")
        assert (await served.pick(completion(model="sql"))).addresses[0] == B.address
        assert (await served.pick(completion())).addresses[0] == A.address


async def test_a_tenant_is_that_of_the_header_or_the_fixed_one() -> None:
    async with gateway(tenant_header="x-tenant") as served:
        await served.report("a", PROMPT)
        await served.report("c", PROMPT, tenant_id="other")
        assert (await served.pick(completion())).addresses[0] == A.address
        assert (await served.pick(completion(), headers={"x-tenant": "other"})).addresses[0] == C.address


class Troubled:
    """A tokenizer that breaks, or is not done before `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def encode_prompt(self, prompt: str) -> list[int]:
        raise NotImplementedError

    def encode_chat(self, chat: object) -> list[int]:
        raise NotImplementedError

    def encode_text(self, text: str) -> list[int]:
        if text == "broken":
            raise SystemError
        self.released.wait()
        return []


async def test_a_tokenizer_that_is_late_or_broken_costs_the_hint_and_no_more() -> None:
    tokenizer = Troubled()
    async with gateway(tokenizing=Tokenizing({MODEL: tokenizer}), budget_s=0.05) as served:
        assert len((await served.pick(completion("late"))).addresses) == 3
        assert served.picks("TIMEOUT") == 1
        tokenizer.released.set()
        assert len((await served.pick(completion("broken"))).addresses) == 3
        assert served.picks("TOKENIZING_FAILED") == 1


async def test_a_failure_of_our_own_costs_the_hint_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway() as served:

        async def fails(*_: object) -> None:
            raise RuntimeError

        monkeypatch.setattr(served.router.servicer.lookup, "consult", fails)
        assert len((await served.pick(completion())).addresses) == 3
        assert served.picks("FAILED") == 1


async def test_bytes_that_are_no_message_end_the_stream_without_an_error() -> None:
    async with gateway() as served:
        path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
        call: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = served.channel.stream_stream(path)
        stream = call(iter([b"\xff\xff\xff"]), timeout=DEADLINE_S)
        assert await stream.read() == grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_health_says_whether_it_lives_and_whether_it_knows_endpoints() -> None:
    async with gateway() as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"):

            async def is_serving(service: str = service) -> bool:
                request = health_pb2.HealthCheckRequest(service=service)
                return bool((await stub.Check(request, timeout=DEADLINE_S)).status == serving)

            await eventually(is_serving)


async def test_the_port_speaks_tls_where_the_routers_own_does() -> None:
    certificate, key = (TLS / f"first.{kind}" for kind in ("crt", "key"))
    credentials = grpc_credentials(certificate_files(certificate, key))
    async with served_picker([A], credentials=credentials) as picker:
        trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
        async with grpc.aio.secure_channel(picker.address, trusted) as channel:
            request = health_pb2.HealthCheckRequest(service="liveness")
            answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_routers_that_hear_of_each_other_do_not_meet_at_one_endpoint() -> None:
    told = [endpoint(f"10.0.1.{number}:8000", f"r{number}") for number in range(6)]
    async with AsyncExitStack() as stack:
        routers = [await stack.enter_async_context(gateway(told)) for _ in range(3)]
        tables = [served.router.log.work for served in routers]
        sent: Counter[str] = Counter()
        for number in range(60):
            served, table = routers[number % 3], tables[number % 3]
            body = completion(list(range(1000 * number, 1000 * number + 800)))
            sent[(await served.pick(body)).addresses[0]] += 1
            assert table is not None
            for item in table.take_unshared():
                for other in tables:
                    if other is not None and other is not table:
                        other.hear(item, time.monotonic())
        assert set(sent) == {each.address for each in told}
        assert max(sent.values()) - min(sent.values()) <= 4


async def test_nothing_of_a_prompt_is_logged() -> None:
    marker = "marker-of-a-secret"
    bodies: list[Any] = [
        completion(marker),
        marker.encode(),
        completion(PROMPT, cache_salt=marker),
        {"model": MODEL, "messages": [{"role": "user", "content": marker}]},
    ]
    tokenizer = Troubled()
    tokenizer.released.set()
    with capture_logs() as logs:
        async with gateway(tokenizing=Tokenizing({MODEL: tokenizer})) as served:
            for body in bodies:
                for path in ("/v1/completions", "/v1/chat/completions"):
                    await served.pick(body, path=path)
    assert logs
    assert marker not in repr(logs)
