"""Which engines and stores there are, for admission, injection and reconciliation alike [ADM-07].

An adapter wires one runtime to one kind of cache; what it writes into an engine is reserved, so that
overrides cannot undo it [ADM-109].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from inferencecache.core.kube.backends import EVENTS_ONLY, HICACHE, LMCACHE, TOPOLOGIES, Backend


class Adapter(NamedTuple):
    """`runtime` as `Backend.runtime_id` has it; `protocols` are the stores it can use besides none."""

    runtime: str
    type: str
    protocols: frozenset[str]
    reserved_args: frozenset[str]
    reserved_env: frozenset[str]

    def __str__(self) -> str:
        return f"{self.runtime}/{self.type}"


PROTOCOLS: Final[Mapping[str, str]] = {"Redis": "resp"}
"""What each provider of remote storage speaks."""

ADAPTERS: Final = (
    Adapter(
        "sglang",
        LMCACHE,
        frozenset({"resp"}),
        frozenset({"--enable-lmcache", "--lmcache-config-file", "--enable-metrics"}),
        frozenset({"LMCACHE_USE_EXPERIMENTAL", "INFERENCECACHE_FAIL_OPEN"}),
    ),
    Adapter(
        "sglang",
        HICACHE,
        frozenset(),
        frozenset(
            {
                "--enable-hierarchical-cache",
                "--hicache-size",
                "--hicache-ratio",
                "--hicache-write-policy",
                "--hicache-io-backend",
                "--hicache-mem-layout",
                "--enable-metrics",
            }
        ),
        frozenset(),
    ),
    Adapter(
        "vllm",
        LMCACHE,
        frozenset({"resp"}),
        frozenset({"--kv-transfer-config", "--disable-hybrid-kv-cache-manager"}),
        frozenset({"PYTHONHASHSEED", "INFERENCECACHE_FAIL_OPEN"}),
    ),
)


def find_adapter(backend: Backend) -> Adapter | None:
    """The adapter for a backend. One for LMCache exists only for a known topology, or for events only
    [ADM-97].
    """
    if backend.type == LMCACHE and backend.mode != EVENTS_ONLY and backend.topology not in TOPOLOGIES:
        return None
    pair = (backend.runtime_id, backend.type)
    return next((adapter for adapter in ADAPTERS if (adapter.runtime, adapter.type) == pair), None)
