"""`RenderTemplate`: a template's text, and the key of the part that many requests share.

The key is the fingerprint's last block hash over the tokens of the stable prefix, encoded as an engine
encodes a completion's prompt; it is empty without a model, without a tokenizer for it, and for a
prefix that fills no block. The caller then hashes the prompt itself.
"""

from __future__ import annotations

from collections.abc import Callable

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.service import get_logger
from inferencecache.core.templates import RenderError, Template
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.v1alpha1.inferencecache_pb2 import RenderTemplateRequest, RenderTemplateResponse

log = get_logger("templates")


class Rendering:
    """Answers from the templates as they are; `block_size` is that of the engines [WIRE-159]."""

    def __init__(
        self, template_of: Callable[[str], Template | None], tokenizing: Tokenizing, block_size: int
    ) -> None:
        self._template_of = template_of
        self._tokenizing = tokenizing
        self._block_size = block_size
        self._reported: set[tuple[str, str]] = set()

    async def answer(self, request: RenderTemplateRequest) -> RenderTemplateResponse:
        """Deterministic in template, variables and model; never an error status [WIRE-025]."""
        template = self._template_of(request.template_ref)
        if template is None:
            return RenderTemplateResponse(reason_code="TEMPLATE_NOT_FOUND")
        try:
            rendered = template.render(dict(request.variables))
        except RenderError as error:
            self._report(request.template_ref, error.problem)
            return RenderTemplateResponse(reason_code="RENDER_ERROR")
        return RenderTemplateResponse(
            rendered_prompt=rendered.text.encode(),
            stable_prefix_hash=await self._key_of(rendered.stable_prefix, request.model_id),
            tenant_namespace=request.tenant_id.encode(),
            reason_code="OK",
            template_revision=template.revision,
        )

    def _report(self, template: str, problem: str) -> None:
        """Log each problem of a template once; names and values of a call are the caller's and stay out."""
        if (template, problem) not in self._reported:
            self._reported.add((template, problem))
            log.warning("render_failed", template=template, problem=problem)

    async def _key_of(self, prefix: str, model: str) -> bytes:
        if not (prefix and model):
            return b""
        tokens = (await self._tokenizing.text(model, prefix)).tokens
        digests = prefix_digests(tokens, self._block_size)
        return digests[-1] if digests else b""
