"""`CachePolicy`: how lookups and eviction treat the tenant that is named like its namespace."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from inferencecache.schemas.resources.objects import (
    DECIMAL_PATTERN,
    Conditions,
    Count32,
    ObservedGeneration,
    Part,
    Resource,
)

CHAIN_RULE: Final = "strategy.requireChain requires strategy.enableChainMatching"
_CHAIN_CEL: Final = (
    "!has(self.strategy) || !has(self.strategy.requireChain) || !self.strategy.requireChain || "
    "!has(self.strategy.enableChainMatching) || self.strategy.enableChainMatching"
)

Switch = Literal["Enabled", "Disabled"]


class Strategy(Part, frozen=True):
    """Which ways of matching and ranking routers use. Absent: all of them."""

    enable_chain_matching: Annotated[
        bool | None,
        Meta(
            description="Whether routers match chains of block hashes. false: only exact keys; token ids "
            "and text then become one exact key. Routers act on it.",
            extra_json_schema={"default": True},
        ),
    ] = None
    require_chain: Annotated[
        bool | None,
        Meta(
            description="Whether a lookup that carries no chain of block hashes is answered "
            "POLICY_REQUIRES_CHAIN. Needs enableChainMatching. Routers act on it.",
            extra_json_schema={"default": False},
        ),
    ] = None
    enable_tenant_hot: Annotated[
        bool | None,
        Meta(
            description="Whether an exact lookup without a match may be answered TENANT_HOT, naming a "
            "replica that serves the tenant well. Routers act on it.",
            extra_json_schema={"default": True},
        ),
    ] = None
    load_balancing: Annotated[
        Switch | None,
        Meta(
            description="Enabled or Disabled: whether a replica that was given more work than others "
            "loses score. Absent means Enabled. Routers act on it."
        ),
    ] = None
    load_weight: Annotated[
        str | None,
        Meta(
            description="Score that a replica loses for each token of extra work, as a decimal string; at "
            'most 8 digits before the point and 6 after it. Absent means "0.5". Routers act on it.',
            extra_json_schema={"pattern": DECIMAL_PATTERN},
        ),
    ] = None


class CachePolicySpec(Part, frozen=True):
    """All fields are optional. Effective values when there is no policy at all are the defaults too."""

    eviction: Annotated[
        Literal["LRU", "LFU"] | None,
        Meta(
            description="LRU or LFU: which entries of the tenant go first when the index is full, those "
            "reported longest ago or those used least. Indexers act on it; routers count uses for LFU.",
            extra_json_schema={"default": "LRU"},
        ),
    ] = None
    eviction_ttl: Annotated[
        str | None,
        Meta(
            description="How long an entry counts after its last report, as a duration such as 45m; more "
            "than 0. Absent means 30m. Below one minute entries of idle engines may age out between "
            "their signs of life. Routers and indexers act on it."
        ),
    ] = msgspec.field(name="evictionTTL", default=None)
    minimum_prefix_tokens: Annotated[
        Count32 | None,
        Meta(
            description="Least tokens a request must cover to get a prefix or tenant-hot hint, 0 or more; "
            "absent and 0 mean no such gate. Routers act on it."
        ),
    ] = None
    minimum_matched_tokens: Annotated[
        Count32 | None,
        Meta(
            description="Least tokens a replica must hold of a prompt to be named, 0 or more; 0 switches "
            "the floor off. Routers act on it.",
            extra_json_schema={"default": 64},
        ),
    ] = None
    routing_floor_score: Annotated[
        str | None,
        Meta(
            description="Least score of the best replica, as a decimal string with at most 8 digits before "
            'the point and 6 after it; "0" switches the floor off. Below it the answer is that of no '
            "match. Routers act on it.",
            extra_json_schema={"default": "0.1", "pattern": DECIMAL_PATTERN},
        ),
    ] = None
    lookup_timeout_ms: Annotated[
        Count32 | None,
        Meta(
            description="Milliseconds after which a lookup is answered TIMEOUT, 0 or more; absent and 0 "
            "mean no limit. Routers act on it."
        ),
    ] = None
    strategy: Annotated[
        Strategy | None,
        Meta(description="Which ways of matching and ranking routers use. Absent: all of them."),
    ] = None
    affinity_routing: Annotated[
        Switch | None,
        Meta(
            description="Enabled or Disabled: whether prompts without a match are sent, equal prompts to "
            "the same replica, so that caches build up (AFFINITY_HINT). Routers act on it.",
            extra_json_schema={"default": "Enabled"},
        ),
    ] = None


class CachePolicyStatus(Part, frozen=True):
    """Written by the controller."""

    observed_generation: ObservedGeneration | None = None
    conditions: Conditions | None = None


class CachePolicy(Resource, frozen=True, tag="CachePolicy"):
    """Lookup and eviction tuning of one namespace [CRD-104..127]. Of several in one namespace the first by
    name is in force, whole.
    """

    spec: Annotated[
        CachePolicySpec,
        Meta(
            description="What is wanted; may be empty.",
            extra_json_schema={
                "x-kubernetes-validations": [{"rule": _CHAIN_CEL, "message": CHAIN_RULE}],
            },
        ),
    ]
    status: CachePolicyStatus | None = None
