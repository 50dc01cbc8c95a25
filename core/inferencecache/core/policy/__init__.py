"""Policy without Kubernetes: from custom resources to the values that lookups and indexers act on.

`resolve` makes the policy set of all resources, `document` writes and reads it as the value of the
bucket, `Intent` is what a reader of the bucket has in force, and `policy_applied` is the part of it
that an owner puts into the log. Effective values are those of `core.index.policy`.
"""

from __future__ import annotations

from inferencecache.core.policy.admission import claim_of, sibling_violations
from inferencecache.core.policy.applied import policy_applied
from inferencecache.core.policy.document import (
    PolicySetTooLargeError,
    UnreadablePolicySetError,
    decode_policy_set,
    encode_policy_set,
)
from inferencecache.core.policy.intent import Intent
from inferencecache.core.policy.resolve import Effect, Resolution, resolve, resolve_policy
from inferencecache.core.policy.topology import resolve_topology

__all__ = [
    "Effect",
    "Intent",
    "PolicySetTooLargeError",
    "Resolution",
    "UnreadablePolicySetError",
    "claim_of",
    "decode_policy_set",
    "encode_policy_set",
    "policy_applied",
    "resolve",
    "resolve_policy",
    "resolve_topology",
    "sibling_violations",
]
