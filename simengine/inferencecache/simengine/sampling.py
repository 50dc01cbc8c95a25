"""Made-up text and tokens: the same prompt gets the same answer from every simulated engine.

Text is tokenised into its UTF-8 bytes, so token ids 0 to 255 are printable where the bytes are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz     "


def tokenize(text: str) -> list[int]:
    """Token ids of a text."""
    return list(text.encode())


def detokenize(tokens: Sequence[int]) -> str:
    """Text of token ids; ids that are no byte are shown as `<id>`."""
    if all(token < 256 for token in tokens):
        return bytes(tokens).decode(errors="replace")
    return "".join(chr(token) if 32 <= token < 127 else f"<{token}>" for token in tokens)


def answer(prompt: Sequence[int]) -> Iterator[int]:
    """Endless answer to a prompt: letters and blanks drawn from its digest."""
    state = sha256(array("I", prompt).tobytes()).digest()
    while True:
        for byte in state:
            yield _LETTERS[byte % len(_LETTERS)]
        state = sha256(state).digest()
