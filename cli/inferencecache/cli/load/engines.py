"""Asking engines for completions over their OpenAI-style API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
import msgspec

from inferencecache.cli.stack.plan import EngineAddress

DEADLINE_S: Final = 30.0
STORED_AT_HEADER: Final = "x-sim-stored-at"
ANSWER_DELAY_HEADER: Final = "x-sim-first-token-s"


class EngineFailedError(Exception):
    """The engine did not answer or answered with an error."""


@dataclass(frozen=True)
class Completion:
    """What an engine answered; `stored_at` is Unix time, 0 when it stored nothing new."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    first_token_s: float
    stored_at: float


class _Choice(msgspec.Struct):
    token_ids: tuple[int, ...]


class _Details(msgspec.Struct):
    cached_tokens: int


class _Usage(msgspec.Struct):
    prompt_tokens: int
    prompt_tokens_details: _Details


class _Answer(msgspec.Struct):
    choices: tuple[_Choice, ...]
    usage: _Usage


class Engines:
    """A client of all engines; use it inside `async with`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(_Answer)
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=DEADLINE_S), connector=aiohttp.TCPConnector(limit=0)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def complete(self, engine: EngineAddress, prompt: Sequence[int], max_tokens: int) -> Completion:
        """One completion. Raises `EngineFailedError`."""
        body = msgspec.json.encode(
            {
                "model": self._model,
                "prompt": prompt,
                "max_tokens": max_tokens,
                "return_token_ids": True,
            }
        )
        try:
            async with self._http.post(f"{engine.url}/v1/completions", data=body) as response:
                payload = await response.read()
                if response.status != 200:
                    raise EngineFailedError(f"{engine.name} answered {response.status}")
                answer = self._decoder.decode(payload)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise EngineFailedError(f"{engine.name}: {type(error).__name__}") from error
        usage = answer.usage
        return Completion(
            tokens=answer.choices[0].token_ids,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens,
            first_token_s=float(response.headers.get(ANSWER_DELAY_HEADER, 0)),
            stored_at=float(response.headers.get(STORED_AT_HEADER, 0)),
        )
