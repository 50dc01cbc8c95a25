"""Makes the reference of reason codes; a code of the program without a row here fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inferencecache.core.index.reason import Reason
from tools.docs.tables import table

_NONE: Final = "none"
_MEANINGS: Final[Mapping[Reason, tuple[str, str, str]]] = {
    Reason.PREFIX_MATCH: (
        "Replicas hold the beginning of the prompt.",
        "ranked",
        "Send the request to the first that can take it.",
    ),
    Reason.TENANT_HOT: (
        "Nobody holds this prefix; these replicas serve the tenant and model with a high hit rate.",
        "ranked, `matched_tokens` 0",
        "Prefer them, all else being equal.",
    ),
    Reason.AFFINITY_HINT: (
        (
            "Nobody holds enough of the prefix. This replica is chosen so that the same prefix "
            "meets the same "
            "replica next time, and that no replica is given more than the others."
        ),
        "one, all numbers 0",
        "Send it there: the next turn of this conversation is then a `PREFIX_MATCH`.",
    ),
    Reason.NO_HINT: (
        (
            "The router has nothing to say: a router that is still loading, a request without "
            "tenant, model or "
            "scheme, a prefix that nobody has seen, or one below what the policy asks for."
        ),
        _NONE,
        "Route as without hints.",
    ),
    Reason.POLICY_REQUIRES_CHAIN: (
        "The tenant's CachePolicy has `strategy.requireChain`, and the request names one key or nothing.",
        _NONE,
        "Send `block_hashes`, `token_ids` or `prompt_text`.",
    ),
    Reason.TIMEOUT: (
        "The lookup took longer than the caller's deadline or the policy's `lookupTimeoutMs`.",
        _NONE,
        "Route as without hints; when it is frequent, see the alert LookupRouteHighTimeout.",
    ),
    Reason.UNKNOWN_TENANT: (
        "The index holds prefixes, and none of this tenant.",
        _NONE,
        (
            "Compare the tenant in requests with `--tenant-id` of sidecars; by convention it is the "
            "namespace "
            "of the engine pods."
        ),
    ),
    Reason.UNKNOWN_MODEL: (
        "The tenant has prefixes, and none of this model.",
        _NONE,
        "Compare the model in requests with `--model-id` of sidecars, in a cluster `observation.modelID`.",
    ),
    Reason.UNKNOWN_HASH_SCHEME: (
        "Tenant and model have prefixes, and none under this hash scheme.",
        _NONE,
        "Name the scheme that sidecars report: `vllm` or `sglang`.",
    ),
    Reason.UNKNOWN_TOPOLOGY: (
        "`LookupPDRoute` names a PDTopology that is not published to routers.",
        _NONE,
        "Write namespace/name of one, and see its condition `Propagated`.",
    ),
    Reason.EMPTY_POOL: (
        "The prefill or the decode pools of the topology select no replica.",
        _NONE,
        "Compare `matchLabels` of the pools with the labels of engine pods.",
    ),
}
_RENDERING: Final = (
    ("`OK`", "The template is rendered.", "Use `rendered_prompt`."),
    (
        "`TEMPLATE_NOT_FOUND`",
        "No PromptTemplate of that namespace/name is published to routers.",
        "See the object's condition `Propagated`; hash the raw prompt meanwhile.",
    ),
    (
        "`RENDER_ERROR`",
        "A required variable is missing, or one is given that the template does not declare.",
        "Compare `variables` with the template's slots.",
    ),
)
_INTRODUCTION: Final = """\
# Reason codes

Every answer says why it is as it is. None of these is a gRPC error: a gateway that gets no replica routes
as if inference-cache were not there. A code that a client does not know means `NO_HINT`, in
`RenderTemplate` `RENDER_ERROR`; new codes may be added within v1alpha1.

Of several wrong keys the outermost is named: first the tenant, then the model, then the scheme. These three
are said only once the index holds something; while a router is loading they are `NO_HINT`.
`inferencecache_lookup_route_calls_total{reason_code="…"}` counts them.

## LookupRoute and LookupPDRoute
"""


def reasons_page() -> dict[str, str]:
    """One page."""
    rows = [(f"`{reason}`", *_MEANINGS[reason]) for reason in Reason]
    lines = [
        _INTRODUCTION,
        *table(("Code", "What it says", "Replicas", "What to do"), rows),
        "",
        "## RenderTemplate",
        "",
        *table(("Code", "What it says", "What to do"), _RENDERING),
        "",
        "Why a gateway of our own sent a request where it did is in [gateways](../gateways.md).",
        "",
        "Written by `make generate`; the codes are those of the program.",
        "",
    ]
    return {"reason-codes.md": "\n".join(lines)}
