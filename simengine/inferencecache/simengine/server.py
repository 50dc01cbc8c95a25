"""The HTTP face of a simulated engine: an OpenAI-style completions API, metrics, health, cache reset.

Beside what such APIs answer, a completion carries how much of the prompt was cached
(`usage.prompt_tokens_details.cached_tokens`), on request the token ids (`return_token_ids`), and in
headers the seconds to its first token and the Unix time at which the event with its new blocks left,
if there were any.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from inferencecache.simengine.cache import BlockHash, PromptTooLongError
from inferencecache.simengine.engine import Engine, Usage
from inferencecache.simengine.events import Form
from inferencecache.simengine.metrics import MetricsPage
from inferencecache.simengine.sampling import detokenize, tokenize

STORED_AT_HEADER: Final = "x-sim-stored-at"
ANSWER_DELAY_HEADER: Final = "x-sim-first-token-s"
MAX_BODY_BYTES: Final = 32 * 1024 * 1024

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class CompletionRequest(msgspec.Struct):
    """Body of `POST /v1/completions`; fields of the API that have no meaning here are ignored."""

    prompt: str | list[TokenId]
    model: str = ""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 16
    stream: bool = False
    return_token_ids: bool = False


class EngineServer:
    """Routes of one engine. `adapters` are served as models of their own, `form` shows hashes."""

    def __init__(
        self, engine: Engine, model: str, form: Form, page: MetricsPage, adapters: Sequence[str] = ()
    ) -> None:
        self._engine = engine
        self._model = model
        self._form = form
        self._page = page
        self._adapters = tuple(adapters)
        self._decoder = msgspec.json.Decoder(CompletionRequest)

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.add_routes(
            [
                web.post("/v1/completions", self._complete),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.get("/health", self._health),
                web.post("/reset_prefix_cache", self._reset),
                web.post("/flush_cache", self._reset),
                web.get("/debug/cache", self._cached_blocks),
            ]
        )
        return application

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = self._decoder.decode(await request.read())
        except msgspec.DecodeError as error:
            return _error(400, str(error))
        if asked.model not in ("", self._model, *self._adapters):
            return _error(
                404, f"the model `{asked.model}` does not exist, this engine serves `{self._model}`"
            )
        prompt = tokenize(asked.prompt) if isinstance(asked.prompt, str) else asked.prompt
        if not prompt:
            return _error(400, "the prompt is empty")
        try:
            usage = self._engine.usage_for(prompt, asked.max_tokens)
        except PromptTooLongError as error:
            return _error(400, str(error))
        adapter = asked.model if asked.model in self._adapters else ""
        pieces = self._engine.generate(
            prompt, asked.max_tokens, usage, adapter=adapter, each_token=asked.stream
        )
        head: dict[str, Any] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": adapter or self._model,
        }
        if asked.stream:
            return await self._stream(request, head, asked, pieces, usage)
        tokens = [token async for piece in pieces for token in piece]
        choice = _choice(tokens, asked, finished=True)
        if asked.return_token_ids:
            choice["prompt_token_ids"] = prompt
        return web.json_response(
            head | {"choices": [choice], "usage": _usage(usage)},
            headers=_headers(usage),
        )

    async def _stream(
        self,
        request: web.Request,
        head: dict[str, Any],
        asked: CompletionRequest,
        pieces: AsyncIterator[list[int]],
        usage: Usage,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        async for piece in pieces:
            finished = usage.completion_tokens == asked.max_tokens
            await _send(response, head | {"choices": [_choice(piece, asked, finished=finished)]})
        await _send(response, head | {"choices": [], "usage": _usage(usage)})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _models(self, request: web.Request) -> web.Response:
        models = [{"id": name, "object": "model"} for name in (self._model, *self._adapters)]
        return web.json_response({"object": "list", "data": models})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._page.render(),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _reset(self, request: web.Request) -> web.Response:
        if not self._engine.reset():
            return _error(409, "a request is running: the cache can only be reset while the engine is idle")
        return web.Response()

    async def _cached_blocks(self, request: web.Request) -> web.Response:
        blocks = [
            {
                "hash": self._shown(block.hash),
                "parent": None if block.parent is None else self._shown(block.parent),
                "token_ids": block.tokens,
            }
            for block in self._engine.cache
        ]
        return web.json_response(
            {
                "block_size": self._engine.cache.block_size,
                "blocks": blocks,
                "host": [self._shown(hash_) for hash_ in self._engine.host],
            }
        )

    def _shown(self, hash_: BlockHash) -> int | str:
        shown = self._form.wire_hash(hash_)
        return shown.hex() if isinstance(shown, bytes) else shown


def _choice(tokens: list[int], asked: CompletionRequest, *, finished: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": 0,
        "text": detokenize(tokens),
        "logprobs": None,
        "finish_reason": "length" if finished else None,
    }
    if asked.return_token_ids:
        choice["token_ids"] = tokens
    return choice


def _headers(usage: Usage) -> dict[str, str]:
    headers = {ANSWER_DELAY_HEADER: f"{usage.first_token_at - usage.arrived_at:.6f}"}
    if usage.stored_at:
        headers[STORED_AT_HEADER] = f"{usage.stored_at:.6f}"
    return headers


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _error(status: int, message: str) -> web.Response:
    kind = "NotFoundError" if status == 404 else "BadRequestError" if status == 400 else "ConflictError"
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)


async def _send(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n")
