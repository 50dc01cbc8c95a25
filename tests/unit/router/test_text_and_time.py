"""Lookups by text, and lookups that run out of time, through the served router."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.gateway import Chat
from inferencecache.router import lookup as lookup_module
from inferencecache.router.lookup import QUICK_TOKENS, Lookup
from inferencecache.router.metrics import ServerMetrics
from inferencecache.router.models_dir import load_models
from inferencecache.router.tokenizing import MAX_TEXT_BYTES, Tokenizing
from inferencecache.schemas.ids import PROBE_TENANT
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.v1alpha1.inferencecache_pb2 import (
    CacheStateUpdate,
    LookupRouteRequest,
    LookupRouteResponse,
    PrefixEntry,
)
from tests.support.models import make_model
from tests.support.router import FoldedLog, Router, served_router
from tests.support.waiting import eventually

SCOPE: dict[str, Any] = {"tenant_id": "t", "model_id": "m", "hash_scheme": "vllm"}
TIMED_OUT = LookupRouteResponse(reason_code="TIMEOUT")


class Words:
    """A tokenizer whose tokens are the numbers in the prompt; it waits for `gate`, and tells `entered`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def encode_prompt(self, prompt: str) -> list[int]:
        self.entered.set()
        self.gate.wait(30)
        return [int(word) for word in prompt.split()]

    def encode_chat(self, chat: Chat) -> list[int]:
        raise NotImplementedError

    def encode_text(self, text: str) -> list[int]:
        return self.encode_prompt(text)


@pytest.fixture
async def words() -> AsyncIterator[Words]:
    words = Words()
    yield words
    words.gate.set()


@pytest.fixture
async def router(words: Words) -> AsyncIterator[Router]:
    """A served router with a tokenizer for `m`."""
    async with served_router(tokenizing=Tokenizing({"m": words})) as router:
        yield router


def text(prompt: str, **more: Any) -> LookupRouteRequest:
    return LookupRouteRequest(**SCOPE | {"prompt_text": prompt, "adapter_id": "a"} | more)


def numbers(count: int) -> str:
    return " ".join(map(str, range(count)))


async def report(router: Router, tokens: int, **more: Any) -> None:
    hashes = prefix_digests(range(tokens), 16)
    entry = PrefixEntry(block_hashes=hashes, block_token_counts=[16] * len(hashes))
    update = CacheStateUpdate(**SCOPE | {"replica_id": "r1", "prefixes": [entry], "adapter_id": "a"} | more)
    assert (await router.stub.ReportCacheState(iter([update]))).accepted


def counted(router: Router, reason: str, hint_used: str = "false", model: str = "other") -> float | None:
    labels = {"model": model, "reason_code": reason, "hint_used": hint_used}
    return router.metric("inferencecache_lookup_route_calls_total", **labels)


# -------------------------------------------------------------------------------------------- text


@pytest.mark.rule("WIRE-C20", "WIRE-058", "WIRE-061", "WIRE-073")
async def test_text_is_tokenized_matched_and_echoed(router: Router) -> None:
    await report(router, 64)
    answer = await router.stub.LookupRoute(text(numbers(64)))
    (score,) = answer.replica_scores
    assert (answer.reason_code, score.replica_id, score.matched_tokens) == ("PREFIX_MATCH", "r1", 64)
    assert (list(answer.token_ids), answer.adapter_id) == (list(range(64)), "a")

    short = await router.stub.LookupRoute(text(numbers(8)))
    assert (short.reason_code, list(short.token_ids)) == ("NO_HINT", list(range(8)))
    assert (short.adapter_id, len(short.replica_scores)) == ("", 0)

    other = await router.stub.LookupRoute(text(numbers(64), model_id="without a tokenizer"))
    assert (other.reason_code, len(other.token_ids), other.adapter_id) == ("NO_HINT", 0, "")


@pytest.mark.rule("WIRE-178", "WIRE-170", "WIRE-173")
async def test_what_is_echoed_is_what_the_models_own_files_make_of_the_prompt(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "team" / "chat")
    models = await asyncio.to_thread(load_models, tmp_path)
    async with served_router(tokenizing=Tokenizing(models)) as router:
        answer = await router.stub.LookupRoute(text("the quick brown fox", model_id="team/chat"))
    rendered = "<s>\n<|user|>the quick brown fox</s>\n<|assistant|>"
    assert list(answer.token_ids) == reference.encode(rendered, add_special_tokens=False).ids


@pytest.mark.rule("WIRE-072", "WIRE-073")
@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "PREFIX_MATCH"),
        ({"adapter_id": "b"}, "AFFINITY_HINT"),
        ({"tenant_id": "u"}, "UNKNOWN_TENANT"),
        ({"hash_scheme": "x"}, "UNKNOWN_HASH_SCHEME"),
        ({"hash_scheme": ""}, "NO_HINT"),
    ],
)
async def test_every_answer_of_the_index_echoes_adapter_and_tokens(
    router: Router, keys: dict[str, str], reason: str
) -> None:
    await report(router, 64)
    answer = await router.stub.LookupRoute(text(numbers(64), **keys))
    assert (answer.reason_code, list(answer.token_ids)) == (reason, list(range(64)))
    assert answer.adapter_id == keys.get("adapter_id", "a")


@pytest.mark.rule("WIRE-073", "WIRE-066")
async def test_the_gate_before_the_index_echoes_tokens_and_no_adapter(router: Router) -> None:
    router.log.apply(ResolvedPolicy("t", minimum_prefix_tokens=200, affinity_routing=False))
    answer = await router.stub.LookupRoute(text(numbers(64)))
    assert (answer.reason_code, list(answer.token_ids)) == ("NO_HINT", list(range(64)))
    assert answer.adapter_id == ""


@pytest.mark.rule("WIRE-062", "WIRE-051", "WIRE-050")
@pytest.mark.parametrize("prompt", ["", "no number", "1 " * (MAX_TEXT_BYTES // 2) + "1"], ids=len)
async def test_text_that_gives_no_tokens_fails_open_without_echo(router: Router, prompt: str) -> None:
    await report(router, 64)
    answer = await router.stub.LookupRoute(text(prompt or " "))
    assert (answer.reason_code, len(answer.token_ids), answer.adapter_id) == ("NO_HINT", 0, "")


@pytest.mark.rule("WIRE-057", "WIRE-C22")
async def test_a_policy_that_requires_a_chain_keeps_text_from_the_tokenizer(
    router: Router, words: Words
) -> None:
    router.log.apply(ResolvedPolicy("t", require_chain=True))
    answer = await router.stub.LookupRoute(text(numbers(64)))
    assert (answer.reason_code, answer.adapter_id) == ("POLICY_REQUIRES_CHAIN", "")
    assert not words.entered.is_set()


@pytest.mark.rule("WIRE-042", "WIRE-022")
async def test_text_of_the_reserved_tenant_is_not_tokenized(router: Router, words: Words) -> None:
    answer = await router.stub.LookupRoute(text(numbers(64), tenant_id=PROBE_TENANT))
    assert answer == LookupRouteResponse(reason_code="NO_HINT")
    assert not words.entered.is_set()


@pytest.mark.rule("WIRE-052")
async def test_a_lookup_without_a_free_slot_fails_open_at_once(words: Words) -> None:
    words.gate.clear()
    async with served_router(tokenizing=Tokenizing({"m": words}, slots=1)) as router:
        first = asyncio.ensure_future(router.stub.LookupRoute(text(numbers(64))))
        await eventually(words.entered.is_set)
        second = await router.stub.LookupRoute(text(numbers(64)))
        assert (second.reason_code, len(second.token_ids)) == ("NO_HINT", 0)
        words.gate.set()
        assert len((await first).token_ids) == 64


async def test_a_hanging_tokenizer_holds_up_no_other_lookup(router: Router, words: Words) -> None:
    await report(router, 64)
    words.gate.clear()
    hanging = asyncio.ensure_future(router.stub.LookupRoute(text(numbers(64))))
    await eventually(words.entered.is_set)
    answer = await router.stub.LookupRoute(LookupRouteRequest(**SCOPE, token_ids=range(64), adapter_id="a"))
    assert answer.reason_code == "PREFIX_MATCH"
    assert not hanging.done()
    words.gate.set()
    await hanging


@pytest.mark.rule("WIRE-022")
async def test_what_was_reported_while_a_text_was_tokenized_is_matched(router: Router, words: Words) -> None:
    words.gate.clear()
    waiting = asyncio.ensure_future(router.stub.LookupRoute(text(numbers(64))))
    await eventually(words.entered.is_set)
    await report(router, 64)
    words.gate.set()
    assert (await waiting).reason_code == "PREFIX_MATCH"


class Fingerprinting:
    """`prefix_digests` that waits for `gate`, and tells `entered`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()

    def __call__(self, tokens: Sequence[int], block_size: int) -> list[bytes]:
        assert threading.current_thread() is not threading.main_thread()
        self.entered.set()
        self.gate.wait(30)
        return prefix_digests(tokens, block_size)


async def test_many_tokens_are_fingerprinted_beside_other_lookups(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprinting = Fingerprinting()
    monkeypatch.setattr(lookup_module, "prefix_digests", fingerprinting)
    many = LookupRouteRequest(**SCOPE, token_ids=range(QUICK_TOKENS + 16), adapter_id="a")
    waiting = asyncio.ensure_future(router.stub.LookupRoute(many))
    await eventually(fingerprinting.entered.is_set)
    await report(router, 64)
    few = LookupRouteRequest(**SCOPE, token_ids=range(QUICK_TOKENS), adapter_id="a")
    assert (await router.stub.LookupRoute(few)).reason_code == "PREFIX_MATCH"
    assert not waiting.done()
    fingerprinting.gate.set()
    (score,) = (await waiting).replica_scores
    assert score.matched_tokens == 64


# -------------------------------------------------------------------------------------------- time


@pytest.mark.rule("WIRE-C21", "WIRE-081", "WIRE-072", "WIRE-073", "WIRE-074", "WIRE-080", "WIRE-136")
async def test_a_hanging_tokenizer_times_out_after_the_policys_limit(router: Router, words: Words) -> None:
    await report(router, 64)
    router.log.apply(ResolvedPolicy("t", lookup_timeout_ms=20))
    words.gate.clear()
    answer = await router.stub.LookupRoute(text(numbers(64)))
    assert 20_000 <= answer.lookup_latency_us < 5_000_000
    answer.ClearField("lookup_latency_us")
    assert answer == TIMED_OUT
    assert counted(router, "TIMEOUT", model="m") == 1
    words.gate.set()
    assert counted(router, "PREFIX_MATCH", "true", model="m") is None


@pytest.mark.rule("WIRE-035", "WIRE-080", "WIRE-081", "WIRE-136")
async def test_a_callers_deadline_ends_the_call_on_either_side_and_counts_as_timed_out(
    router: Router, words: Words
) -> None:
    words.gate.clear()
    call = router.stub.LookupRoute(text(numbers(64)), timeout=0.05)
    with contextlib.suppress(grpc.aio.AioRpcError):
        assert (await call).reason_code == "TIMEOUT"
    assert await call.code() in {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}
    await eventually(lambda: counted(router, "TIMEOUT") == 1)


@pytest.mark.rule("WIRE-080", "WIRE-081")
async def test_a_caller_that_cancels_counts_as_timed_out(router: Router, words: Words) -> None:
    words.gate.clear()
    call = router.stub.LookupRoute(text(numbers(64)))
    asking = asyncio.ensure_future(call)
    await eventually(words.entered.is_set)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    await eventually(lambda: counted(router, "TIMEOUT") == 1)


class Clock:
    """A monotonic clock that each reading moves by `step_s`."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s = 1000.0
        self.step_s = step_s

    def monotonic(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def perf_counter_ns(self) -> int:
        return int(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lookup_module, "time", clock)
    return clock


def alone(log: FoldedLog, words: Words | None = None) -> Lookup:
    tokenizing = Tokenizing({"m": words} if words is not None else {})
    return Lookup(log, ServerMetrics(CollectorRegistry()), 16, tokenizing=tokenizing)


def chain(**more: Any) -> LookupRouteRequest:
    return LookupRouteRequest(**SCOPE | {"token_ids": range(64), "adapter_id": "a"} | more)


@pytest.mark.rule("WIRE-056", "WIRE-143", "IDX-131")
async def test_a_deadline_that_has_passed_comes_before_everything_but_the_reserved_tenant(
    clock: Clock,
) -> None:
    log = FoldedLog()
    log.apply(ResolvedPolicy("t", require_chain=True))
    lookup = alone(log)
    assert await lookup.answer(chain(), 0.0) == TIMED_OUT
    assert await lookup.answer(chain(tenant_id=PROBE_TENANT), 0.0) == LookupRouteResponse(
        reason_code="NO_HINT"
    )
    assert (await lookup.answer(chain(), 1.0)).reason_code == "POLICY_REQUIRES_CHAIN"


@pytest.mark.rule("WIRE-056", "WIRE-081", "WIRE-072", "IDX-131", "IDX-142")
async def test_a_result_that_comes_with_the_deadline_is_discarded(router: Router, clock: Clock) -> None:
    await report(router, 64)
    lookup = alone(router.log)
    assert (await lookup.answer(chain(), 1.0)).reason_code == "PREFIX_MATCH"
    clock.step_s = 0.5
    answer = await lookup.answer(chain(), 1.0)
    answer.ClearField("lookup_latency_us")
    assert answer == TIMED_OUT
    # A required chain is missed before the index is asked: that answer has no deadline to wait for.
    router.log.apply(ResolvedPolicy("t", require_chain=True))
    assert (await lookup.answer(chain(), 1.0)).reason_code == "POLICY_REQUIRES_CHAIN"


@pytest.mark.rule("WIRE-073", "WIRE-081")
async def test_time_that_runs_out_after_tokenizing_keeps_the_tokens(
    router: Router, words: Words, clock: Clock
) -> None:
    await report(router, 64)
    clock.step_s = 2.0
    answer = await alone(router.log, words).answer(text(numbers(64)), 4.0)
    assert (answer.reason_code, list(answer.token_ids)) == ("TIMEOUT", list(range(64)))
    assert (len(answer.replica_scores), answer.adapter_id) == (0, "")


@pytest.mark.rule("IDX-123", "IDX-131", "WIRE-056")
@pytest.mark.parametrize(
    ("granted_s", "timeout_ms", "reason"),
    [
        (None, 1500, "TIMEOUT"),
        (10.0, 1500, "TIMEOUT"),
        (1.5, 10_000, "TIMEOUT"),
        (1.5, 0, "TIMEOUT"),
        (1.5, -5, "TIMEOUT"),
        (10.0, 10_000, "PREFIX_MATCH"),
        (None, 10_000, "PREFIX_MATCH"),
        (None, 0, "PREFIX_MATCH"),
        (None, -1, "PREFIX_MATCH"),
    ],
)
async def test_the_tighter_of_the_callers_and_the_policys_limit_counts(
    router: Router, clock: Clock, granted_s: float | None, timeout_ms: int, reason: str
) -> None:
    await report(router, 64)
    router.log.apply(ResolvedPolicy("t", lookup_timeout_ms=timeout_ms))
    clock.step_s = 1.0
    assert (await alone(router.log).answer(chain(), granted_s)).reason_code == reason


@pytest.mark.rule("WIRE-083", "WIRE-053")
async def test_without_any_limit_only_text_is_bounded_by_five_seconds(
    router: Router, words: Words, clock: Clock
) -> None:
    await report(router, 64)
    lookup = alone(router.log, words)
    clock.step_s = 1000.0
    assert (await lookup.answer(chain(prompt_text=numbers(64)))).reason_code == "PREFIX_MATCH"
    clock.step_s = 2.4
    assert (await lookup.answer(text(numbers(64)))).reason_code == "PREFIX_MATCH"
    clock.step_s = 2.5
    assert (await lookup.answer(text(numbers(64)))).reason_code == "TIMEOUT"


@pytest.mark.rule("IDX-131", "IDX-145", "IDX-W74", "WIRE-079")
async def test_an_answer_that_timed_out_credits_and_assigns_nothing(router: Router, clock: Clock) -> None:
    await report(router, 64)
    router.log.apply(ResolvedPolicy("t", eviction="lfu"))
    credited = router.log.credited
    lookup = Lookup(router.log, ServerMetrics(CollectorRegistry()), 16, credited=credited)
    clock.step_s = 0.5
    assert (await lookup.answer(chain(), 1.0)).reason_code == "TIMEOUT"
    assert not credited.take()
    assert (await lookup.answer(chain(), 9.0)).reason_code == "PREFIX_MATCH"
    assert credited.take()
