"""The policy set in bytes: what is written to the bucket and what is accepted from it.

A set is refused as a whole and the previous one stays in force when its version is not known here, or
when it is of a known version and not of that version's form [IDX-128, CTL-199].
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from inferencecache.core.index.policy import OLDEST_POLICY_SCHEMA, UnsupportedPolicySchemaError, accept
from inferencecache.schemas.policy import POLICY_SCHEMA, PolicySet, ResolvedPolicy, ResolvedQuota
from inferencecache.schemas.policy_document import (
    PolicyDocument,
    PolicyEntry,
    StrategyEntry,
    TenantEntry,
)
from inferencecache.schemas.unreadable import UNREADABLE

MAX_BYTES: Final = 1024 * 1024
_NS_PER_MS: Final = 1_000_000


class UnreadablePolicySetError(ValueError):
    """The value is no policy set of the version it names."""


class PolicySetTooLargeError(ValueError):
    """No reader accepts so many policies and quotas in one set."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the policy set takes {size} bytes, the most that is accepted is {MAX_BYTES}; "
            "delete policies or quotas that say nothing but defaults"
        )
        self.size = size


class _Version(msgspec.Struct):
    version: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PolicyDocument)
_version_decoder = msgspec.json.Decoder(_Version)


def encode_policy_set(policy_set: PolicySet) -> bytes:
    """The value for the bucket; equal sets give equal bytes. Raises `PolicySetTooLargeError`."""
    payload = _encoder.encode(_document(policy_set))
    if len(payload) > MAX_BYTES:
        raise PolicySetTooLargeError(len(payload))
    return payload


def decode_policy_set(payload: bytes) -> PolicySet:
    """The set with the fields filled that its version could not carry [IDX-129].

    Raises `UnsupportedPolicySchemaError`, whatever else the value holds, for a version that is not
    known here, and `UnreadablePolicySetError`.
    """
    if len(payload) > MAX_BYTES:
        raise UnreadablePolicySetError(f"{len(payload)} bytes are more than {MAX_BYTES}")
    try:
        version = _version_decoder.decode(payload).version
        is_known = OLDEST_POLICY_SCHEMA <= version <= POLICY_SCHEMA
        document = _decoder.decode(payload) if is_known else None
    except UNREADABLE as error:
        raise UnreadablePolicySetError(str(error) or type(error).__name__) from None
    if document is None:
        raise UnsupportedPolicySchemaError(version)
    return accept(_policy_set(document))


def _document(policy_set: PolicySet) -> PolicyDocument:
    return PolicyDocument(
        version=policy_set.schema,
        policies=tuple(map(_policy_entry, policy_set.policies)),
        tenants=tuple(
            TenantEntry(
                tenant_id=quota.tenant_id,
                max_index_entries=quota.max_index_entries,
                isolation_mode=quota.isolation_mode,
            )
            for quota in policy_set.quotas
        ),
    )


def _policy_entry(policy: ResolvedPolicy) -> PolicyEntry:
    return PolicyEntry(
        namespace=policy.namespace,
        eviction_ttl=policy.eviction_ttl_ms * _NS_PER_MS,
        minimum_prefix_tokens=policy.minimum_prefix_tokens,
        minimum_matched_tokens=policy.minimum_matched_tokens,
        routing_floor_score=policy.routing_floor_score,
        lookup_timeout_ms=policy.lookup_timeout_ms,
        affinity_routing=policy.affinity_routing,
        eviction=policy.eviction,
        strategy=_strategy_entry(policy),
    )


def _strategy_entry(policy: ResolvedPolicy) -> StrategyEntry | None:
    entry = StrategyEntry(
        enable_chain_matching=policy.enable_chain_matching,
        require_chain=policy.require_chain,
        enable_tenant_hot=policy.enable_tenant_hot,
        load_balancing=policy.load_balancing,
        load_weight=policy.load_weight,
    )
    return None if entry == StrategyEntry() else entry


def _policy_set(document: PolicyDocument) -> PolicySet:
    return PolicySet(
        schema=document.version,
        policies=tuple(map(_resolved_policy, document.policies)),
        quotas=tuple(
            ResolvedQuota(entry.tenant_id, entry.max_index_entries, entry.isolation_mode)
            for entry in document.tenants
        ),
    )


def _resolved_policy(entry: PolicyEntry) -> ResolvedPolicy:
    strategy: Any = msgspec.structs.asdict(entry.strategy or StrategyEntry())
    return ResolvedPolicy(
        namespace=entry.namespace,
        eviction=entry.eviction.lower() or "lru",
        eviction_ttl_ms=milliseconds(entry.eviction_ttl),
        minimum_prefix_tokens=entry.minimum_prefix_tokens,
        minimum_matched_tokens=entry.minimum_matched_tokens,
        routing_floor_score=entry.routing_floor_score,
        lookup_timeout_ms=entry.lookup_timeout_ms,
        affinity_routing=entry.affinity_routing,
        **strategy,
    )


def milliseconds(nanoseconds: int) -> int:
    """Rounded up, so that the shortest time is still one."""
    return -(-nanoseconds // _NS_PER_MS)
