"""Names for the strings and numbers that identify things, so that a type checker tells them apart."""

from __future__ import annotations

from typing import Final, NewType

TenantId = NewType("TenantId", str)
ModelId = NewType("ModelId", str)
ReplicaId = NewType("ReplicaId", str)
HashScheme = NewType("HashScheme", str)
AdapterId = NewType("AdapterId", str)
Incarnation = NewType("Incarnation", str)
"""One life of a producer: random, never reused; its order is the order of `Begin` in the log."""
OwnerId = NewType("OwnerId", str)
"""One indexer process: random, minted when the process starts."""
LogEpoch = NewType("LogEpoch", str)
"""One life of a partition's log: random, minted when a partition has to start from nothing."""

PROBE_TENANT: Final = TenantId("inferencecache.io/probe")
"""The reserved tenant of the functional self-test [WIRE-040]."""
MAX_ID_BYTES: Final = 255
"""Longest id, in UTF-8 bytes, that a subject token may carry."""
