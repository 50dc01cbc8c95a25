"""Which prefixes each replica has: by the engines themselves, and by the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import aiohttp

from inferencecache.cli.stack.plan import EngineAddress
from inferencecache.core.fingerprint import prefix_hashes
from tests.oracle.model import NaiveFold

Holds = dict[str, set[int]]
"""Prefix hashes by replica."""


async def true_holds(engines: Sequence[EngineAddress], http: aiohttp.ClientSession) -> Holds:
    """The union of the engines' caches, as they list them."""
    caches = await asyncio.gather(*(_cache_of(engine, http) for engine in engines))
    return {engine.replica: cache for engine, cache in zip(engines, caches, strict=True)}


def folded_holds(folds: Iterable[NaiveFold], *, certain: bool = False) -> Holds:
    """What the model makes of the log, whoever holds it; only what is certain, if asked for."""
    found: Holds = {}
    for fold in folds:
        for key, hold in fold.holds.items():
            if not (certain and hold.uncertain):
                found.setdefault(key.replica, set()).add(key.key)
    return found


def differences(truth: Holds, folded: Holds) -> list[str]:
    """One line for each replica about which they differ."""
    lines = []
    for replica in sorted(truth.keys() | folded.keys()):
        true, seen = truth.get(replica, set()), folded.get(replica, set())
        if true != seen:
            lines.append(
                f"{replica}: {len(true - seen)} of {len(true)} are not in the index {_some(true - seen)}, "
                f"{len(seen - true)} are only there {_some(seen - true)}"
            )
    return lines


def doubted(folds: Iterable[NaiveFold]) -> list[str]:
    """One line for each replica with uncertain holds: these age, and go while the engine keeps them."""
    uncertain: dict[str, int] = {}
    for fold in folds:
        for key, hold in fold.holds.items():
            if hold.uncertain:
                uncertain[key.replica] = uncertain.get(key.replica, 0) + 1
    return [f"{replica}: {count} holds are uncertain" for replica, count in sorted(uncertain.items())]


async def _cache_of(engine: EngineAddress, http: aiohttp.ClientSession) -> set[int]:
    async with http.get(f"{engine.url}/debug/cache") as answer:
        document = await answer.json()
    size: int = document["block_size"]
    blocks: dict[int, dict[str, Any]] = {block["hash"]: block for block in document["blocks"]}
    known: dict[int | None, int | None] = {None: None}

    def prefix_of(hash_: int | None) -> int | None:
        if hash_ not in known:
            assert hash_ is not None
            block = blocks[hash_]
            [known[hash_]] = prefix_hashes(block["token_ids"], size, prefix_of(block["parent"]))
        return known[hash_]

    return {prefix for hash_ in blocks if (prefix := prefix_of(hash_)) is not None}


def _some(hashes: set[int]) -> list[str]:
    return [f"{hash_:016x}" for hash_ in sorted(hashes)[:4]]
