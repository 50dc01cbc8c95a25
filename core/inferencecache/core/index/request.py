"""What a lookup asks for, and which of its inputs counts.

A caller may send a chain, an exact key, tokens or text, or several at once; exactly one is used
[WIRE-058, WIRE-059]. Tokenizing text is the caller's work: it takes time, and this does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.single import wrapped
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, TenantId

MAX_TOKENS: Final = 1 << 20
"""Most tokens that are fingerprinted for one lookup [WIRE-050]."""
DEFAULT_BLOCK_SIZE: Final = 16


class RouteRequest(NamedTuple):
    """A `LookupRoute` request. `prompt_tokens` is what a tokenizer made of `prompt_text`, empty when
    there is none or it failed; `block_size` is that of the engines, in tokens [WIRE-159]. `digests` are
    those of `tokens_that_count`, when the caller has made them; else `resolve` makes them.
    """

    tenant: TenantId
    model: ModelId
    scheme: HashScheme
    adapter: AdapterId = AdapterId("")
    prefix_hash: bytes = b""
    prefix_token_count: int = 0
    block_hashes: Sequence[bytes] = ()
    block_token_counts: Sequence[int] = ()
    token_ids: Sequence[int] = ()
    prompt_text: str = ""
    prompt_tokens: Sequence[int] = ()
    ttft_ms: int = 0
    block_size: int = DEFAULT_BLOCK_SIZE
    digests: Sequence[bytes] | None = None

    @property
    def has_all_keys(self) -> bool:
        """Without one of the contract keys nothing can match [IDX-58]."""
        return bool(self.tenant and self.model and self.scheme)

    @property
    def has_balanced_chain(self) -> bool:
        """Whether the chain arrays as sent, possibly both empty, have equal lengths [IDX-103]."""
        return len(self.block_hashes) == len(self.block_token_counts)

    @property
    def has_chain(self) -> bool:
        """Whether a usable chain was sent; tokens and text are none [WIRE-057]."""
        return bool(self.block_hashes) and self.has_balanced_chain

    def is_about_text(self, chain_matching: bool) -> bool:
        """Whether `prompt_text` is the input that `resolve` chooses, so that its tokens are needed."""
        if not self.prompt_text or self.prefix_hash or self.token_ids:
            return False
        return not (chain_matching and (self.block_hashes or self.block_token_counts))

    def tokens_that_count(self, chain_matching: bool) -> Sequence[int]:
        """The tokens that `resolve` fingerprints; none when it chooses another input, or too many."""
        if self.prefix_hash or (chain_matching and (self.block_hashes or self.block_token_counts)):
            return ()
        tokens = self.token_ids or (self.prompt_tokens if self.prompt_text else ())
        return tokens if len(tokens) <= MAX_TOKENS else ()


class Inputs(NamedTuple):
    """The input that counts: a chain when `hashes` is not empty, else an exact key, possibly empty."""

    hashes: Sequence[bytes] = ()
    counts: Sequence[int] = ()
    exact: bytes = b""
    exact_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that the request covers, as the minimum-prefix gate counts them [IDX-133]."""
        return wrapped(sum(self.counts)) if self.counts else self.exact_tokens


class Resolution(NamedTuple):
    """`inputs` is `None` when the lookup fails open; `echo` are tokens made from text [WIRE-073]."""

    inputs: Inputs | None
    echo: Sequence[int] = ()


_FAILED: Final = Resolution(None)


def resolve(request: RouteRequest, chain_matching: bool) -> Resolution:
    """Choose the input of a lookup [IDX-132]."""
    if chain_matching:
        if request.block_hashes or request.block_token_counts or request.prefix_hash:
            return _explicit_chain(request) if request.has_balanced_chain else _FAILED
    elif request.prefix_hash:
        return Resolution(Inputs(exact=request.prefix_hash, exact_tokens=request.prefix_token_count))
    if request.token_ids:
        return Resolution(_derived(request.token_ids, request, chain_matching))
    if request.prompt_text:
        tokens = request.prompt_tokens
        if not 0 < len(tokens) <= MAX_TOKENS:
            return _FAILED
        return Resolution(_derived(tokens, request, chain_matching), tokens)
    if request.block_hashes or request.block_token_counts:
        return _FAILED
    return Resolution(Inputs(exact_tokens=request.prefix_token_count))


def _explicit_chain(request: RouteRequest) -> Resolution:
    return Resolution(
        Inputs(
            request.block_hashes,
            request.block_token_counts,
            request.prefix_hash,
            request.prefix_token_count,
        )
    )


def _derived(tokens: Sequence[int], request: RouteRequest, chain_matching: bool) -> Inputs | None:
    """The chain of the tokens, or its last hash as an exact key; `None` for too few or too many
    tokens [WIRE-050, WIRE-061, WIRE-156, WIRE-157].
    """
    if len(tokens) > MAX_TOKENS:
        return None
    block_size = request.block_size
    hashes = prefix_digests(tokens, block_size) if request.digests is None else request.digests
    if not hashes:
        return None
    if chain_matching:
        return Inputs(hashes, [block_size] * len(hashes))
    return Inputs(exact=hashes[-1], exact_tokens=len(hashes) * block_size)
