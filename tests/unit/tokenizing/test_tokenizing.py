"""Tokenizing with bounds, beside the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog.testing

from inferencecache.core.gateway import Chat
from inferencecache.core.index.request import MAX_TOKENS
from inferencecache.router.models_dir import load_models
from inferencecache.router.tokenizing import (
    DEFAULT_LIMIT_S,
    MAX_TEXT_BYTES,
    SLOTS,
    Refusal,
    Tokenized,
    Tokenizing,
)
from tests.support.models import make_model
from tests.support.waiting import a_moment, eventually


class Gated:
    """A tokenizer that returns when the test lets it, and counts its calls."""

    def __init__(self, answer: Callable[[str], list[int]] = lambda text: [len(text)]) -> None:
        self.gate = threading.Event()
        self.entered = 0
        self._answer = answer

    def encode_prompt(self, prompt: str) -> list[int]:
        self.entered += 1
        self.gate.wait(30)
        return self._answer(prompt)

    def encode_chat(self, chat: Chat) -> list[int]:
        raise NotImplementedError

    def encode_text(self, text: str) -> list[int]:
        return [0, *self.encode_prompt(text)]


class Panic(BaseException):
    """What the library's crashes look like."""


@pytest.fixture
async def gated() -> AsyncIterator[Gated]:
    tokenizer = Gated()
    yield tokenizer
    tokenizer.gate.set()


def opened(answer: Callable[[str], list[int]]) -> Tokenizing:
    tokenizer = Gated(answer)
    tokenizer.gate.set()
    return Tokenizing({"m": tokenizer})


async def test_a_prompt_and_a_text_become_tokens() -> None:
    tokenizing = opened(lambda text: [1, 2, len(text)])
    assert await tokenizing.prompt("m", "four") == Tokenized([1, 2, 4])
    assert await tokenizing.text("m", "four") == Tokenized([0, 1, 2, 4])
    assert tokenizing.running == 0


@pytest.mark.rule("WIRE-C20", "WIRE-173")
async def test_a_real_model_gives_the_tokens_of_its_template(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "org" / "model")
    tokenizing = Tokenizing(load_models(tmp_path))
    made = await tokenizing.prompt("org/model", "hello")
    text = "<s>\n<|user|>hello</s>\n<|assistant|>"
    assert made == Tokenized(reference.encode(text, add_special_tokens=False).ids)
    (tmp_path / "org" / "model" / "tokenizer.json").unlink()
    assert await tokenizing.prompt("org/model", "hello") == made


@pytest.mark.rule("WIRE-062", "WIRE-176", "WIRE-C20")
@pytest.mark.parametrize("model", ["other", "", "/m", "../m", "./m", "m/", "C:/m"])
async def test_a_model_that_is_not_loaded_has_no_tokenizer(model: str) -> None:
    assert await opened(lambda _: [1]).prompt(model, "x") == Tokenized(refusal=Refusal.NO_TOKENIZER)


@pytest.mark.rule("WIRE-051", "WIRE-062")
async def test_a_text_over_the_limit_never_reaches_the_tokenizer(gated: Gated) -> None:
    tokenizing = Tokenizing({"m": gated})
    for text in ("x" * (MAX_TEXT_BYTES + 1), "é" * (MAX_TEXT_BYTES // 2) + "x"):
        assert await tokenizing.prompt("m", text) == Tokenized(refusal=Refusal.TOO_LARGE)
    assert gated.entered == 0
    gated.gate.set()
    for text in ("x" * MAX_TEXT_BYTES, "é" * (MAX_TEXT_BYTES // 2)):
        assert (await tokenizing.prompt("m", text)).refusal is None


@pytest.mark.rule("WIRE-050", "WIRE-062")
async def test_too_many_tokens_and_none_are_refused() -> None:
    most = opened(lambda text: [5] * (MAX_TOKENS + (text == "more")))
    assert len((await most.prompt("m", "enough")).tokens) == MAX_TOKENS
    assert await most.prompt("m", "more") == Tokenized(refusal=Refusal.TOO_MANY_TOKENS)
    assert await opened(lambda _: []).prompt("m", "x") == Tokenized(refusal=Refusal.NO_TOKENS)


@pytest.mark.rule("WIRE-062")
@pytest.mark.parametrize("error", [ValueError("secret prompt"), Panic("secret prompt")])
async def test_a_tokenizer_that_fails_is_reported_once_without_its_prompt(error: BaseException) -> None:
    def fail(_: str) -> list[int]:
        raise error

    tokenizing = opened(fail)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert await tokenizing.prompt("m", "secret prompt") == Tokenized(refusal=Refusal.FAILED)
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("tokenizing_failed", type(error).__name__)
    ]
    assert "secret" not in str(logs)
    assert tokenizing.running == 0


@pytest.mark.rule("WIRE-052")
async def test_beyond_the_slots_a_call_is_refused_at_once(gated: Gated) -> None:
    tokenizing = Tokenizing({"m": gated})
    running = [asyncio.create_task(tokenizing.prompt("m", "x")) for _ in range(SLOTS)]
    await eventually(lambda: gated.entered == SLOTS)
    began = time.monotonic()
    assert await tokenizing.prompt("m", "x") == Tokenized(refusal=Refusal.BUSY)
    assert await tokenizing.prompt("other", "x") == Tokenized(refusal=Refusal.BUSY)
    assert time.monotonic() - began < 1
    gated.gate.set()
    assert await asyncio.gather(*running) == [Tokenized([1])] * SLOTS
    assert await tokenizing.prompt("m", "x") == Tokenized([1])


@pytest.mark.rule("WIRE-C21", "WIRE-052", "WIRE-081", "WIRE-082")
async def test_a_call_out_of_time_leaves_its_slot_taken_until_the_tokenizer_returns(gated: Gated) -> None:
    tokenizing = Tokenizing({"m": gated}, slots=1)
    began = time.monotonic()
    assert await tokenizing.prompt("m", "x", 0.02) == Tokenized(refusal=Refusal.TIMED_OUT)
    assert 0.02 <= time.monotonic() - began < 1
    assert tokenizing.running == 1
    assert await tokenizing.prompt("m", "x", 0.02) == Tokenized(refusal=Refusal.BUSY)
    gated.gate.set()
    await eventually(lambda: tokenizing.running == 0)
    assert await tokenizing.prompt("m", "x", 5) == Tokenized([1])


@pytest.mark.rule("WIRE-082")
async def test_a_cancelled_call_leaves_its_slot_taken_until_the_tokenizer_returns(gated: Gated) -> None:
    tokenizing = Tokenizing({"m": gated})
    call = asyncio.create_task(tokenizing.prompt("m", "x"))
    await eventually(lambda: gated.entered == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert tokenizing.running == 1
    gated.gate.set()
    await eventually(lambda: tokenizing.running == 0)


async def test_without_time_nothing_is_started(gated: Gated) -> None:
    tokenizing = Tokenizing({"m": gated})
    assert await tokenizing.prompt("m", "x", 0.0) == Tokenized(refusal=Refusal.TIMED_OUT)
    assert gated.entered == 0


@pytest.mark.rule("WIRE-053")
async def test_a_call_that_nothing_bounds_ends_after_five_seconds(
    gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DEFAULT_LIMIT_S == 5.0
    monkeypatch.setattr("inferencecache.router.tokenizing.DEFAULT_LIMIT_S", 0.05)
    assert await Tokenizing({"m": gated}).prompt("m", "x") == Tokenized(refusal=Refusal.TIMED_OUT)


async def test_the_event_loop_runs_while_a_real_model_tokenizes(tmp_path: Path) -> None:
    make_model(tmp_path / "m")
    tokenizing = Tokenizing(load_models(tmp_path))
    text = "the quick brown fox jumps over the lazy dog\n" * 8_000
    call = asyncio.create_task(tokenizing.prompt("m", text))
    turns = 0
    while not call.done():
        await a_moment()
        turns += 1
    assert (await call).refusal is None
    assert turns > 5
