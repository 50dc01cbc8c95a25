"""The eight calls of the contract, as bytes over real gRPC: a script of calls to one served router.

Every call ends with a status that the contract has for it, every answer is well formed, nothing unforeseen
is logged, and the router goes on answering [WIRE sections 3 to 9].
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import groupby
from random import Random
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from structlog.testing import capture_logs

from inferencecache.router.server import RECEIVE_LIMIT_BYTES
from inferencecache.router.servicer import SERVICE
from inferencecache.schemas.ids import MAX_ID_BYTES, PROBE_TENANT
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.v1alpha1.inferencecache_pb2 import (
    SLO,
    Ack,
    CacheEvent,
    CacheStateUpdate,
    GetCacheStateRequest,
    GetCacheStateResponse,
    LookupPDRouteRequest,
    LookupPDRouteResponse,
    LookupRouteRequest,
    LookupRouteResponse,
    Metric,
    PrefixEntry,
    RenderTemplateRequest,
    RenderTemplateResponse,
    ReplicaStats,
    StreamEventsRequest,
    StreamMetricsRequest,
)
from tests.fuzz import mutation
from tests.fuzz.mutation import NUMBERS, TEXTS, join, mutate_bytes, script_mutation, script_parts, split
from tests.fuzz.target import Target
from tests.support.router import Router, served_router

_CALL_S: Final = 20.0
_STREAM_S: Final = 0.05
_IMPATIENT_S: Final = 0.001
_IMPATIENT: Final = 0x30
_FULL: Final = 0x40
_OVER: Final = 0x80
"""Kind of a message = number of the call, or one of these + it: with next to no time, with a message as large
as may be, with one a byte larger. Other kinds are as the bare number."""
_MOST_CALLS: Final = 16
_RUNS: Final = 2000
"""After so many inputs comes another router, since what is reported stays."""
_OUT_OF_TIME: Final = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, None})
_CLIENT_BROKE_OFF: Final = "Internal error from Core"
"""What the library says in place of the status if that comes while it still writes."""
_CANARY: Final = "canary-in-the-fuzzer"
_SECRET: Final = "prompt-of-the-fuzzer"
_SECRET_TOKEN: Final = 3_777_700_001
_SECRETS: Final = (_SECRET, str(_SECRET_TOKEN))
_PROMPT_FIELDS: Final = frozenset({"prompt_text", "token_ids", "variables"})
_REASONS: Final = frozenset(
    {"PREFIX_MATCH", "TENANT_HOT", "AFFINITY_HINT", "NO_HINT", "POLICY_REQUIRES_CHAIN", "TIMEOUT"}
    | {"UNKNOWN_TENANT", "UNKNOWN_MODEL", "UNKNOWN_HASH_SCHEME"}
)
_POSITIVE: Final = frozenset({"PREFIX_MATCH", "TENANT_HOT", "AFFINITY_HINT"})
_POLICIES: Final = (
    ResolvedPolicy("u", minimum_matched_tokens=0, routing_floor_score=0.0),
    ResolvedPolicy("v", enable_chain_matching=False, affinity_routing=False, minimum_prefix_tokens=32),
    ResolvedPolicy("w", require_chain=True, eviction_ttl_ms=2**40, minimum_matched_tokens=-1),
)


class _Method(NamedTuple):
    """A call: its name, types, whether requests or answers are streams, and what answers must be."""

    name: str
    request: type[Message]
    answer: type[Message]
    check: Callable[[Any, Any], None]
    client_stream: bool = False
    server_stream: bool = False


# ------------------------------------------------------------------------------------------ running


class _Served:
    """One router for many inputs, on a loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._context: AbstractAsyncContextManager[Router] | None = None
        self._router: Router | None = None
        self._runs = 0

    def run(self, data: bytes) -> None:
        calls = [(kind, _grown(kind & 0xF0, payload)) for kind, payload in split(data)[:_MOST_CALLS]]
        if any(map(_is_secret_a_name, calls)):
            return
        with capture_logs() as lines:
            self._runner.run(self._run(calls))
        assert not [line for line in lines if line["log_level"] in {"error", "critical"}], lines
        shown = repr(lines)
        assert not any(secret in shown for secret in _SECRETS), "what a prompt says is logged"

    def close(self) -> None:
        self._runner.run(self._stop())
        self._runner.close()

    async def _run(self, calls: Sequence[tuple[int, bytes]]) -> None:
        if self._router is None or self._runs >= _RUNS:
            await self._stop()
            await self._start()
        router = self._router
        assert router is not None
        self._runs += 1
        for kind, group in groupby(calls, key=lambda call: call[0]):
            payloads = [payload for _, payload in group]
            method = METHODS[(kind & 15) % len(METHODS)]
            is_impatient = kind & 0xF0 == _IMPATIENT
            if method.client_stream:
                await _check_call(router, method, payloads, is_impatient)
                continue
            for payload in payloads:
                await _check_call(router, method, [payload], is_impatient)
        await _check_canary(router)

    async def _start(self) -> None:
        self._runs = 0
        self._context = served_router()
        self._router = await self._context.__aenter__()
        self._router.log.apply(*_POLICIES)
        update = _update(tenant_id=_CANARY)
        assert (await self._router.stub.ReportCacheState(iter([update]))).accepted

    async def _stop(self) -> None:
        context, self._context, self._router = self._context, None, None
        if context is not None:
            await context.__aexit__(None, None, None)


async def _check_canary(router: Router) -> None:
    lookup = LookupRouteRequest(tenant_id=_CANARY, model_id="m", hash_scheme="vllm", prefix_hash=b"p")
    answer = await router.stub.LookupRoute(lookup, timeout=_CALL_S)
    assert [(score.replica_id, score.score) for score in answer.replica_scores] == [("r1", 128.0)]
    state = await router.stub.GetCacheState(
        GetCacheStateRequest(tenant_id=_CANARY, model_id="m"), timeout=_CALL_S
    )
    assert state.summary.total_prefixes == 1


async def _check_call(router: Router, method: _Method, payloads: Sequence[bytes], is_impatient: bool) -> None:
    requests, expected = _expectation(method, payloads)
    is_endless = method.server_stream and expected is grpc.StatusCode.OK
    seconds = _IMPATIENT_S if is_impatient else _STREAM_S if is_endless else _CALL_S
    status, answers = await _called(router, method, payloads, seconds)
    if is_impatient and status in _OUT_OF_TIME:
        return
    if status is None:
        assert expected is not grpc.StatusCode.OK
        return
    if is_endless:
        assert status in {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}, status
    else:
        assert status is expected, f"{method.name}: {status}, not {expected}"
    for answer in answers:
        method.check(requests[0] if requests else method.request(), method.answer.FromString(answer))


async def _called(
    router: Router, method: _Method, payloads: Sequence[bytes], seconds: float
) -> tuple[grpc.StatusCode | None, list[bytes]]:
    """Status and answers; no status if the client's library kept that to itself."""
    path = f"/{SERVICE}/{method.name}"
    channel: Any = router.channel
    if method.server_stream:
        call = channel.unary_stream(path)(payloads[0], timeout=seconds)
    elif method.client_stream:
        call = channel.stream_unary(path)(iter(payloads), timeout=seconds)
    else:
        call = channel.unary_unary(path)(payloads[0], timeout=seconds)
    answers = []
    # Whoever still sends when the status comes is told of a cancellation; the status is there all the same.
    with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        answers = [answer async for answer in call] if method.server_stream else [await call]
    if method.client_stream and await call.details() == _CLIENT_BROKE_OFF:
        return None, answers
    return await call.code(), answers


def _grown(size_class: int, payload: bytes) -> bytes:
    """The payload as large as its kind says, by an unknown field."""
    if size_class not in {_FULL, _OVER}:
        return payload
    size = RECEIVE_LIMIT_BYTES + (size_class == _OVER)
    length = size - len(payload) - 6
    return payload + b"\xc2\x3e" + _varint(length) + bytes(length)


def _varint(number: int) -> bytes:
    """In four bytes."""
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21))


def _expectation(method: _Method, payloads: Sequence[bytes]) -> tuple[list[Message], grpc.StatusCode]:
    """The requests up to the first that is refused, and the status that follows."""
    requests: list[Message] = []
    for payload in payloads:
        if len(payload) > RECEIVE_LIMIT_BYTES:
            return requests, grpc.StatusCode.RESOURCE_EXHAUSTED
        try:
            request = method.request.FromString(payload)
        except DecodeError:
            return requests, grpc.StatusCode.INTERNAL
        requests.append(request)
        if isinstance(request, (CacheStateUpdate, CacheEvent)) and not _is_storable(request):
            return requests, grpc.StatusCode.INVALID_ARGUMENT
    return requests, grpc.StatusCode.OK


def _is_storable(request: CacheStateUpdate | CacheEvent) -> bool:
    """Can subjects carry the ids of a message? Those of the reserved tenant are dropped unread."""
    ids = [request.tenant_id, request.model_id, request.replica_id, request.adapter_id]
    if isinstance(request, CacheStateUpdate):
        ids += [request.hash_scheme, *(entry.adapter_id for entry in request.prefixes)]
    return request.tenant_id == PROBE_TENANT or all(len(id_.encode()) <= MAX_ID_BYTES for id_ in ids)


def _is_secret_a_name(call: tuple[int, bytes]) -> bool:
    """Does a request say what only prompts should? Ids may be logged [OPS-17], also long after the call."""
    kind, payload = call
    try:
        request: Any = METHODS[(kind & 15) % len(METHODS)].request.FromString(payload)
    except DecodeError:
        return False
    for name in _PROMPT_FIELDS.intersection(request.DESCRIPTOR.fields_by_name):
        request.ClearField(name)
    named = str(request)
    return any(secret in named for secret in _SECRETS)


# ------------------------------------------------------------------------------------------ answers


def _check_lookup(request: LookupRouteRequest, answer: LookupRouteResponse) -> None:
    scores = answer.replica_scores
    assert answer.reason_code in _REASONS
    assert bool(scores) == (answer.reason_code in _POSITIVE)
    order = [(-score.score, score.replica_id.encode()) for score in scores]
    assert order == sorted(order), "answers are not in order"
    for score in scores:
        assert math.isfinite(score.score)
        assert score.estimated_cache_hit_prob >= 0 or answer.reason_code == "TENANT_HOT"
        assert score.tier in {0, 1, 2, 3}
    if answer.reason_code != "PREFIX_MATCH":
        assert {(score.matched_tokens, score.tier) for score in scores} <= {(0, 0)}
    if answer.reason_code == "AFFINITY_HINT":
        assert [(score.score, score.estimated_cache_hit_prob) for score in scores] == [(0, 0)]
    assert answer.lookup_latency_us >= 0
    assert not answer.token_ids, "this router tokenizes nothing"
    assert answer.adapter_id in {"", request.adapter_id}
    if request.tenant_id == PROBE_TENANT:
        assert answer == LookupRouteResponse(reason_code="NO_HINT")


def _check_state(request: GetCacheStateRequest, answer: GetCacheStateResponse) -> None:
    assert answer.HasField("summary")
    assert answer.summary.total_prefixes >= 0
    assert answer.summary.hot_prefixes == 0
    ids = [stats.replica_id.encode() for stats in answer.replicas]
    assert ids == sorted(set(ids))
    for stats in answer.replicas:
        assert math.isfinite(stats.hit_rate)
        assert math.isfinite(stats.pressure)
        assert not stats.client_version
    if request.tenant_id == PROBE_TENANT:
        assert not answer.replicas


def _check_ack(_: Message, answer: Ack) -> None:
    assert answer == Ack(accepted=True)


def _check_rendered(_: RenderTemplateRequest, answer: RenderTemplateResponse) -> None:
    assert answer.reason_code in {"OK", "TEMPLATE_NOT_FOUND", "RENDER_ERROR"}


def _check_pair(_: LookupPDRouteRequest, answer: LookupPDRouteResponse) -> None:
    assert answer.reason_code


def _check_event(request: StreamEventsRequest, answer: CacheEvent) -> None:
    assert answer.tenant_id != PROBE_TENANT
    assert not request.types or answer.type in request.types


def _check_metric(request: StreamMetricsRequest, answer: Metric) -> None:
    assert not request.names or answer.name in request.names


METHODS: Final = (
    _Method("LookupRoute", LookupRouteRequest, LookupRouteResponse, _check_lookup),
    _Method("ReportCacheState", CacheStateUpdate, Ack, _check_ack, client_stream=True),
    _Method("PublishEvent", CacheEvent, Ack, _check_ack),
    _Method("GetCacheState", GetCacheStateRequest, GetCacheStateResponse, _check_state),
    _Method("LookupRoute", LookupRouteRequest, LookupRouteResponse, _check_lookup),
    _Method("ReportCacheState", CacheStateUpdate, Ack, _check_ack, client_stream=True),
    _Method("RenderTemplate", RenderTemplateRequest, RenderTemplateResponse, _check_rendered),
    _Method("LookupPDRoute", LookupPDRouteRequest, LookupPDRouteResponse, _check_pair),
    _Method("StreamCacheEvents", StreamEventsRequest, CacheEvent, _check_event, server_stream=True),
    _Method("StreamMetrics", StreamMetricsRequest, Metric, _check_metric, server_stream=True),
)
"""By the low four bits of a message's kind; the calls that do most are there twice."""


# ------------------------------------------------------------------------------------------- inputs


def _update(**changes: Any) -> CacheStateUpdate:
    entry = PrefixEntry(prefix_hash=b"p", token_count=128)
    named: dict[str, Any] = {"replica_id": "r1", "model_id": "m", "tenant_id": "t", "hash_scheme": "vllm"}
    return CacheStateUpdate(**named | {"prefixes": [entry]} | changes)


def _lookup(**changes: Any) -> LookupRouteRequest:
    named: dict[str, Any] = {"model_id": "m", "tenant_id": "t", "hash_scheme": "vllm"}
    return LookupRouteRequest(**named | changes)


def _seeds() -> list[bytes]:
    chain = [b"block-01", b"block-02", b"block-003", b""]
    blocks = PrefixEntry(block_hashes=chain, block_token_counts=[64] * 4, tier=2, adapter_id="a")  # type: ignore[arg-type]
    stats = ReplicaStats(hit_rate=0.5, pressure=0.25, cache_memory_bytes=1 << 40, t2_hit_tokens=5)
    messages: list[Message] = [
        _update(stats=stats),
        _update(replica_id="r2", prefixes=[blocks, PrefixEntry()], timestamp_us=5, adapter_id="b"),
        _update(tenant_id="u", replica_id="é", prefixes=[blocks], stats=ReplicaStats(hit_rate=float("nan"))),
        _update(tenant_id="v"),
        _update(tenant_id=PROBE_TENANT, replica_id="__probe-x"),
        _lookup(prefix_hash=b"p", prefix_token_count=128, slo=SLO(ttft_ms=50)),
        _lookup(block_hashes=chain, block_token_counts=[64] * 4, adapter_id="a"),
        _lookup(tenant_id="u", block_hashes=chain[:2], block_token_counts=[2**31 - 1] * 2, adapter_id="a"),
        _lookup(tenant_id="v", token_ids=[_SECRET_TOKEN] * 40),
        _lookup(tenant_id="w", token_ids=range(64)),
        _lookup(prompt_text=_SECRET, tenant_id=PROBE_TENANT),
        _lookup(prompt_text=_SECRET),
        CacheEvent(
            type=CacheEvent.PREFIX_EVICTED, replica_id="r1", model_id="m", tenant_id="t", prefix_hash=b"p"
        ),
        CacheEvent(type=CacheEvent.ALL_CLEARED, replica_id="r2", model_id="m", tenant_id="t"),
        CacheEvent(
            type=CacheEvent.REPLICA_UPDATED, replica_id="r1", model_id="m", tenant_id="t", timestamp_us=-1
        ),
        GetCacheStateRequest(model_id="m", tenant_id="t"),
        RenderTemplateRequest(template_ref="a/b", variables={"x": _SECRET}, tenant_id="t"),
        LookupPDRouteRequest(model_id="m", tenant_id="t", prefix_hash=b"p", pd_topology_ref="a/b"),
        StreamEventsRequest(model_id="m", tenant_id="t", types=[CacheEvent.PREFIX_EVICTED]),
        StreamMetricsRequest(names=["inferencecache_index_entries"]),
    ]
    calls = [mutation.Message(_kind_of(message), message.SerializeToString()) for message in messages]
    random = Random(2)
    scripts = [calls, *([call] for call in calls)]
    scripts += [random.sample(calls, 5) for _ in range(30)]
    scripts += [[mutation.Message(kind + limit, b"")] for kind, limit in ((0, _FULL), (1, _OVER), (2, _OVER))]
    return [join(script) for script in scripts]


def _kind_of(message: Message) -> int:
    return next(kind for kind, method in enumerate(METHODS) if isinstance(message, method.request))


def _mutate(random: Random, data: bytes) -> bytes:
    """Change a message by its fields, or anything as bytes."""
    calls = split(data)
    if not calls or random.randrange(3) == 0:
        return _mutate_script(random, data)
    at = random.randrange(len(calls))
    kind, payload = calls[at]
    message = METHODS[(kind & 15) % len(METHODS)].request()
    with suppress(DecodeError):
        message.ParseFromString(payload)
    _mutate_fields(random, message)
    calls[at] = mutation.Message(kind, message.SerializeToString())
    return join(calls)


_mutate_script: Final = script_mutation(mutate_bytes, lambda random: random.randrange(64))


def _mutate_fields(random: Random, message: Any) -> None:
    """Change one field, or one inside it."""
    field: FieldDescriptor = random.choice(message.DESCRIPTOR.fields)
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value[random.choice(TEXTS)] = random.choice(TEXTS)
    elif field.is_repeated:
        _mutate_list(random, value, field)
    elif field.message_type is not None:
        if random.randrange(4):
            value.SetInParent()
            _mutate_fields(random, value)
        else:
            message.ClearField(field.name)
    else:
        setattr(message, field.name, _value_of(random, field))


def _mutate_list(random: Random, values: Any, field: FieldDescriptor) -> None:
    if field.message_type is not None and values and random.randrange(2):
        _mutate_fields(random, random.choice(values))
        return
    match random.randrange(6):
        case 0 if values:
            del values[random.randrange(len(values))]
        case 1:
            del values[:]
        case 2:
            more = list(values) * random.choice((1, 2, 200))
            values.extend(more[:3000])
        case _ if field.message_type is not None:
            values.add()
        case _:
            values.extend([_value_of(random, field)] * random.choice((1, 1, 2, 500)))


def _value_of(random: Random, field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return random.choice((b"", b"p", b"block-01", b"\xff" * 8, random.randbytes(32), b"x" * 5000))
        case FieldDescriptor.CPPTYPE_STRING:
            return random.choice(
                (*TEXTS, "t", "u", "v", "w", "m", "vllm", "r1", "r2", PROBE_TENANT, "x" * 5000)
            )
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return random.choice(
                (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, 1e300, *map(float, ("nan", "inf", "-inf")))
            )
        case FieldDescriptor.CPPTYPE_UINT32:
            return random.choice(NUMBERS) & 0xFFFFFFFF
        case FieldDescriptor.CPPTYPE_INT64:
            return wrapped(random.choice(NUMBERS), 64)
        case _:
            return wrapped(random.choice(NUMBERS), 32)


def wrapped(number: int, bits: int) -> int:
    """The number as a signed one of so many bits."""
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


_SERVED: Final = _Served()
TARGET: Final = Target(_SERVED.run, _seeds, _mutate, script_parts, _SERVED.close)
