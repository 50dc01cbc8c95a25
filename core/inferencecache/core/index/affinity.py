"""The fallback pick: equal prompts go to equal replicas as long as the replicas stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from inferencecache.core.index.request import Inputs
from inferencecache.schemas.ids import ReplicaId


def seed_of(inputs: Inputs) -> bytes:
    """What is hashed; empty means that there is nothing to go by [IDX-105, WIRE-180..182]."""
    if not inputs.hashes:
        return inputs.exact
    return b"".join([len(hash_).to_bytes(4, "big") + hash_ for hash_ in inputs.hashes])


def pick(seed: bytes, members: Sequence[ReplicaId]) -> ReplicaId:
    """The member that a seed maps to; `members` is ascending and not empty [IDX-106, WIRE-183]."""
    return members[int.from_bytes(sha256(seed).digest()[:8], "big") % len(members)]
