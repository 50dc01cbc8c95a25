"""Request traces: Mooncake's where they are present, a generated one of the same shape elsewhere."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from inferencecache.core.fingerprint import prefix_digests

BLOCK_TOKENS: Final = 512
"""Tokens of one block of a trace [Mooncake's `hash_ids`]."""
FOLDER_VARIABLE: Final = "MOONCAKE_DIR"
FOLDER: Final = Path(__file__).parents[3] / "shared" / "data" / "mooncake"
_DIGIT: Final = 128
_FILLER: Final = (0,) * (BLOCK_TOKENS - 3)


class Request(NamedTuple):
    """One prompt: when it comes, how long it is, and its blocks, the last of which may be part full.

    A block's number stands for the whole prefix that ends in it.
    """

    at_s: float
    tokens: int
    blocks: tuple[int, ...]

    @property
    def counts(self) -> list[int]:
        """Tokens of each block."""
        whole = len(self.blocks) - 1
        return [BLOCK_TOKENS] * whole + [self.tokens - whole * BLOCK_TOKENS]


class _Line(msgspec.Struct):
    timestamp: int
    input_length: int
    hash_ids: tuple[int, ...]


class Trace(NamedTuple):
    """Requests in order of time; `source` says where they are from."""

    name: str
    source: str
    requests: Sequence[Request]

    @property
    def span_s(self) -> float:
        return self.requests[-1].at_s if self.requests else 0.0

    def slice(self, seconds: float) -> Trace:
        """The beginning of the trace."""
        return self._replace(requests=[request for request in self.requests if request.at_s < seconds])

    def spread(self) -> Trace:
        """Requests of one time evenly over the time until the next.

        Mooncake's conversation trace knows times to three seconds only, so that ten requests that came one
        after the other stand there as if they had come in one instant.
        """
        groups = [list(group) for _, group in groupby(self.requests, key=lambda request: request.at_s)]
        requests: list[Request] = []
        for group, following in zip(groups, [*groups[1:], groups[-1]], strict=True):
            step_s = (following[0].at_s - group[0].at_s) / len(group)
            requests += [each._replace(at_s=each.at_s + rank * step_s) for rank, each in enumerate(group)]
        return self._replace(requests=requests)

    @property
    def ceiling(self) -> float:
        """Share of blocks that one cache without bounds would have had."""
        known: set[int] = set()
        found = 0
        for request in self.requests:
            found += leading(request.blocks, known)
            known.update(request.blocks)
        return found / max(1, sum(len(request.blocks) for request in self.requests))


def load(name: str) -> Trace:
    """The trace of that name from the folder of `MOONCAKE_DIR`, else a generated one."""
    path = Path(os.environ.get(FOLDER_VARIABLE) or FOLDER) / f"{name}_trace.jsonl"
    if path.exists():
        return Trace(name, "mooncake", read(path.read_bytes().splitlines()))
    return Trace(name, "generated", list(generated(seed=name)))


def read(lines: Iterable[bytes]) -> list[Request]:
    """The requests of a Mooncake file, in order of time."""
    decoder = msgspec.json.Decoder(_Line)
    read_ = map(decoder.decode, lines)
    return sorted(
        (Request(line.timestamp / 1000, line.input_length, line.hash_ids) for line in read_),
        key=lambda request: request.at_s,
    )


def generated(*, seed: str, requests: int = 4000, rate: float = 3.4, users: int = 300) -> Iterator[Request]:
    """Conversations behind one system prompt: a third of a prompt's blocks were mostly sent before."""
    rng = random.Random(f"routing/{seed}")
    fresh = count(1)
    histories: list[list[int]] = [[0] for _ in range(users)]
    at_s = 0.0
    for _ in range(requests):
        at_s += rng.expovariate(rate)
        user = rng.randrange(users)
        history = histories[user]
        if len(history) > 40 or rng.random() < 0.4:
            history = histories[user] = [0]
        history += [next(fresh) for _ in range(rng.randint(4, 24))]
        tokens = len(history) * BLOCK_TOKENS - rng.randrange(BLOCK_TOKENS)
        yield Request(round(at_s, 3), tokens, tuple(history))


def leading(blocks: Sequence[int], held: Iterable[int]) -> int:
    """How many of the first blocks are held."""
    return next((at for at, block in enumerate(blocks) if block not in held), len(blocks))


def tokens_of(blocks: Sequence[int]) -> tuple[int, ...]:
    """Token ids that only these blocks have."""
    return tuple(token for block in blocks for token in _tokens_of(block))


class Digests:
    """The keys of blocks as engines' sidecars and gateways compute them, each block once."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}

    def of(self, blocks: Sequence[int]) -> list[bytes]:
        """Digests of a chain, one a block."""
        known = self._known
        parent: int | None = None
        for block in blocks:
            if block not in known:
                known[block] = prefix_digests(_tokens_of(block), BLOCK_TOKENS, parent)[0]
            parent = int.from_bytes(known[block], "big")
        return [known[block] for block in blocks]


def _tokens_of(block: int) -> tuple[int, ...]:
    return (block % _DIGIT, block // _DIGIT % _DIGIT, block // _DIGIT**2, *_FILLER)
