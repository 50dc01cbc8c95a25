"""Which prefixes each replica has: by the engines themselves, and by a router's view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp

from inferencecache.cli.stack.plan import EngineAddress
from inferencecache.core.fingerprint import prefix_hashes
from inferencecache.router.following import IndexFollowing

Holds = dict[str, set[int]]
"""Prefix hashes by replica."""


async def true_holds(engines: Sequence[EngineAddress], http: aiohttp.ClientSession) -> Holds:
    """The union of the engines' caches, as they list them."""
    caches = await asyncio.gather(*(_cache_of(engine, http) for engine in engines))
    return {engine.replica: cache for engine, cache in zip(engines, caches, strict=True)}


def viewed_holds(following: IndexFollowing, engines: Sequence[EngineAddress]) -> Holds:
    """The whole of a router's view, whoever holds it."""
    found: Holds = {engine.replica: set() for engine in engines}
    for replica in following.replicas:
        view = replica.view
        for number, holder in view.holders.by_number.items():
            found.setdefault(holder.name.replica, set()).update(view.table.keys_of(number).tolist())
    return found


def differences(truth: Holds, viewed: Holds) -> list[str]:
    """One line for each replica about which they differ."""
    lines = []
    for replica in sorted(truth.keys() | viewed.keys()):
        true, seen = truth.get(replica, set()), viewed.get(replica, set())
        if true != seen:
            lines.append(
                f"{replica}: {len(true - seen)} of {len(true)} are not in the view {_some(true - seen)}, "
                f"{len(seen - true)} are only there {_some(seen - true)}"
            )
    return lines


def doubted(following: IndexFollowing) -> list[str]:
    """One line for each holder with uncertain holds: these age, and go while the engine keeps them."""
    return [
        f"{holder.name.replica}: {len(uncertain)} holds are uncertain"
        for replica in following.replicas
        for number, holder in replica.view.holders.by_number.items()
        if len(uncertain := replica.view.table.uncertain_keys(number))
    ]


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
