"""A prompt in one of the forms that routers know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest


class Prompt(NamedTuple):
    """Made by one of the class methods; `adapter` is the LoRA adapter, empty for the base model."""

    token_ids: Sequence[int] = ()
    text: str = ""
    block_hashes: Sequence[bytes] = ()
    block_token_counts: Sequence[int] = ()
    adapter: str = ""

    @classmethod
    def of_tokens(cls, token_ids: Sequence[int], *, adapter: str = "") -> Self:
        """A prompt that is tokenized already: exactly what the engine will see. The form to prefer."""
        return cls(token_ids=token_ids, adapter=adapter)

    @classmethod
    def of_text(cls, text: str, *, adapter: str = "") -> Self:
        """One message of a user, for routers that have the model's tokenizer."""
        return cls(text=text, adapter=adapter)

    @classmethod
    def of_blocks(cls, hashes: Sequence[bytes], token_counts: Sequence[int], *, adapter: str = "") -> Self:
        """The fingerprints of a prompt's blocks, which tell nobody what is in it."""
        return cls(block_hashes=hashes, block_token_counts=token_counts, adapter=adapter)


def request_of(model: str, tenant: str, hash_scheme: str, prompt: Prompt) -> LookupRouteRequest | None:
    """The message for a lookup; `None` for values that no message can hold."""
    try:
        return LookupRouteRequest(
            model_id=model,
            tenant_id=tenant,
            hash_scheme=hash_scheme,
            adapter_id=prompt.adapter,
            token_ids=prompt.token_ids,
            prompt_text=prompt.text,
            block_hashes=prompt.block_hashes,
            block_token_counts=prompt.block_token_counts,
        )
    except (TypeError, ValueError):
        return None
