"""The reason codes of `LookupRoute` and `LookupPDRoute` [WIRE-130..139]."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why an answer is as it is; a client treats one that it does not know as `NO_HINT` [WIRE-009]."""

    PREFIX_MATCH = "PREFIX_MATCH"
    TENANT_HOT = "TENANT_HOT"
    AFFINITY_HINT = "AFFINITY_HINT"
    NO_HINT = "NO_HINT"
    POLICY_REQUIRES_CHAIN = "POLICY_REQUIRES_CHAIN"
    TIMEOUT = "TIMEOUT"
    UNKNOWN_TENANT = "UNKNOWN_TENANT"
    UNKNOWN_MODEL = "UNKNOWN_MODEL"
    UNKNOWN_HASH_SCHEME = "UNKNOWN_HASH_SCHEME"
    UNKNOWN_TOPOLOGY = "UNKNOWN_TOPOLOGY"
    EMPTY_POOL = "EMPTY_POOL"
