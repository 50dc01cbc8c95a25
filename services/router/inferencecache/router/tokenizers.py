"""One model's tokenizer: from text to the token ids that its engine would see.

Encoding is deterministic, safe for concurrent calls, and lets the rest of the process run meanwhile
[WIRE-178]: the library holds Python's global lock through a single encoding, for most of a second for
a long prompt, but not through that of a batch; a batch of one takes the same time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from inferencecache.core.gateway import Chat
from inferencecache.router.chat_template import ChatTemplate, read_chat_template

TOKENIZER_FILE: Final = "tokenizer.json"


class NoChatTemplateError(Exception):
    """The model has a tokenizer and no chat template, so a prompt has no form that its engine would see."""


class ModelTokenizer:
    """A tokenizer with its chat template, if it has one."""

    def __init__(self, tokenizer: Tokenizer, chat_template: ChatTemplate | None) -> None:
        # A file may ask for padding or for cutting to a length, which an engine does not do either.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._chat_template = chat_template

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_prompt` can do anything."""
        return self._chat_template is not None

    def encode_prompt(self, prompt: str) -> list[int]:
        """Ids of the prompt as one chat message; special tokens are those of the template [WIRE-171].

        Raises `NoChatTemplateError` and what a template raises.
        """
        if self._chat_template is None:
            raise NoChatTemplateError
        return self._encode(self._chat_template.render(prompt), add_special_tokens=False)

    def encode_chat(self, chat: Chat) -> list[int]:
        """Ids of a whole chat, as `encode_prompt` of one message."""
        if self._chat_template is None:
            raise NoChatTemplateError
        return self._encode(self._chat_template.render_chat(chat), add_special_tokens=False)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text as engines encode a completion's prompt: as it is, with special tokens."""
        return self._encode(text, add_special_tokens=True)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids


def load_tokenizer(folder: Path) -> ModelTokenizer:
    """The tokenizer of a model's folder. Raises whatever makes it unusable."""
    # The library's own threads would let one long prompt hold up all others.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        raise ValueError(f"there is no {TOKENIZER_FILE}; convert the model's *.tiktoken file to one")
    return ModelTokenizer(Tokenizer.from_file(str(file)), read_chat_template(folder))
