"""Tokenizing beside the event loop: bounded in number, in time and in size, never queued.

A tokenizer cannot be interrupted. It runs in a thread of its own; a caller that runs out of time goes
on without it, and its slot stays taken until the tokenizer has returned, whose result nobody sees
[WIRE-052, WIRE-082]. Prompts and ids are in no log line and no error here [WIRE-023].
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from inferencecache.core.gateway import Chat
from inferencecache.core.index.request import MAX_TOKENS
from inferencecache.core.service import get_logger
from inferencecache.router.models_dir import PromptTokenizer, is_model_id

MAX_TEXT_BYTES: Final = 1 << 20
"""Largest text that a tokenizer is given, in UTF-8 bytes [WIRE-051]."""
SLOTS: Final = 64
"""Tokenizations at the same time in one process [WIRE-052]."""
DEFAULT_LIMIT_S: Final = 5.0
"""For a call that nothing else bounds [WIRE-053]."""

log = get_logger("tokenizers")

_Encode = Callable[[], list[int]]


class Refusal(Enum):
    """Why there are no tokens, in the order in which it is found out [WIRE-062]."""

    TOO_LARGE = "too_large"
    BUSY = "busy"
    NO_TOKENIZER = "no_tokenizer"
    FAILED = "failed"
    NO_TOKENS = "no_tokens"
    TOO_MANY_TOKENS = "too_many_tokens"
    TIMED_OUT = "timed_out"
    """The one that makes a lookup answer `TIMEOUT`; after the others it answers `NO_HINT`."""


class Tokenized(NamedTuple):
    """Tokens, or why there are none."""

    tokens: Sequence[int] = ()
    refusal: Refusal | None = None


class Tokenizing:
    """The tokenizers of a process by model id, and the slots to run them in."""

    def __init__(self, models: Mapping[str, PromptTokenizer], *, slots: int = SLOTS) -> None:
        self._models = models
        self._slots = slots
        self._running = 0
        self._reported: set[tuple[str, str]] = set()

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def running(self) -> int:
        """Slots that are taken now."""
        return self._running

    async def prompt(self, model: str, prompt: str, limit_s: float | None = None) -> Tokenized:
        """Tokens of a prompt as one chat message, within `limit_s` seconds or the default limit."""
        tokenizer = self._model(model)
        encode = None if tokenizer is None else partial(tokenizer.encode_prompt, prompt)
        return await self._tokenize(model, encode, _is_too_large(prompt), limit_s)

    async def chat(self, model: str, chat: Chat, size: int, limit_s: float | None = None) -> Tokenized:
        """Tokens of a chat that came in a body of `size` bytes."""
        tokenizer = self._model(model)
        encode = None if tokenizer is None else partial(tokenizer.encode_chat, chat)
        return await self._tokenize(model, encode, size > MAX_TEXT_BYTES, limit_s)

    async def text(self, model: str, text: str, limit_s: float | None = None) -> Tokenized:
        """Tokens of a text as it is, as for a completion."""
        tokenizer = self._model(model)
        encode = None if tokenizer is None else partial(tokenizer.encode_text, text)
        return await self._tokenize(model, encode, _is_too_large(text), limit_s)

    def _model(self, model: str) -> PromptTokenizer | None:
        return self._models.get(model) if is_model_id(model) else None

    async def _tokenize(
        self, model: str, encode: _Encode | None, is_too_large: bool, limit_s: float | None
    ) -> Tokenized:
        if is_too_large:
            return Tokenized(refusal=Refusal.TOO_LARGE)
        if self._running >= self._slots:
            return Tokenized(refusal=Refusal.BUSY)
        if encode is None:
            return Tokenized(refusal=Refusal.NO_TOKENIZER)
        limit_s = DEFAULT_LIMIT_S if limit_s is None else limit_s
        if limit_s <= 0:
            return Tokenized(refusal=Refusal.TIMED_OUT)
        try:
            async with asyncio.timeout(limit_s):
                tokens = await self._start(encode)
        except TimeoutError:
            return Tokenized(refusal=Refusal.TIMED_OUT)
        if isinstance(tokens, BaseException):
            self._report(model, tokens)
            return Tokenized(refusal=Refusal.FAILED)
        if not tokens:
            return Tokenized(refusal=Refusal.NO_TOKENS)
        if len(tokens) > MAX_TOKENS:
            return Tokenized(refusal=Refusal.TOO_MANY_TOKENS)
        return Tokenized(tokens)

    def _start(self, encode: _Encode) -> asyncio.Future[list[int] | BaseException]:
        """Take a slot and start a thread, a daemon: a tokenizer that hangs must not keep the process."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[int] | BaseException] = loop.create_future()

        def finish(outcome: list[int] | BaseException) -> None:
            self._running -= 1
            if not done.done():
                done.set_result(outcome)

        def work() -> None:
            try:
                outcome: list[int] | BaseException = encode()
            except BaseException as error:  # noqa: BLE001 - the library's panics are no Exception
                outcome = error
            try:
                loop.call_soon_threadsafe(finish, outcome)
            except RuntimeError:
                return  # the loop is closed, and with it the process is ending

        self._running += 1
        try:
            threading.Thread(target=work, name="tokenizer", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            finish(error)
        return done

    def _report(self, model: str, error: BaseException) -> None:
        """Log the kind of a failure, once a model: its text may repeat the prompt."""
        kind = type(error).__name__
        if (model, kind) not in self._reported:
            self._reported.add((model, kind))
            log.warning("tokenizing_failed", model=model, error=kind)


def _is_too_large(text: str) -> bool:
    if len(text) * 4 <= MAX_TEXT_BYTES:
        return False
    return len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES
