"""The affinity pick, against vectors shared with other implementations."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.affinity import pick, seed_of
from inferencecache.core.index.request import Inputs
from inferencecache.schemas.ids import ReplicaId

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "fingerprint_vectors.json").read_text())[
    "affinity"
]


def test_the_file_holds_all_11_vectors() -> None:
    assert len(VECTORS) == 11


@pytest.mark.rule("WIRE-163", "WIRE-180", "WIRE-181", "WIRE-183", "IDX-105", "IDX-106")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_every_vector_is_reproduced(vector: dict[str, Any]) -> None:
    chain = [bytes.fromhex(hash_) for hash_ in vector["chain"]]
    seed = seed_of(Inputs(chain, [16] * len(chain), bytes.fromhex(vector["exact"])))
    assert seed.hex() == vector["seed"]
    assert hashlib.sha256(seed).hexdigest() == vector["sha256"]
    assert pick(seed, sorted(ReplicaId(name) for name in vector["replicas"])) == vector["pick"]


@pytest.mark.rule("WIRE-180", "WIRE-184")
def test_token_counts_and_a_co_set_key_do_not_move_the_pick() -> None:
    plain = seed_of(Inputs([b"a", b"b"], [16, 16]))
    assert plain == seed_of(Inputs([b"a", b"b"], [1, 2], b"key", 5))
    assert plain != seed_of(Inputs([b"ab"], [32]))


@pytest.mark.rule("WIRE-181")
def test_without_any_hash_there_is_no_seed() -> None:
    assert seed_of(Inputs(exact_tokens=50)) == b""


@pytest.mark.rule("WIRE-C49", "WIRE-182")
def test_tokens_pick_by_chain_or_by_their_last_hash() -> None:
    hashes = prefix_digests(range(100, 120), 16)
    replicas = [ReplicaId("r-1"), ReplicaId("r-2"), ReplicaId("r-3")]
    assert pick(seed_of(Inputs(hashes, [16])), replicas) == "r-2"
    assert pick(seed_of(Inputs(exact=hashes[-1])), replicas) == "r-3"
