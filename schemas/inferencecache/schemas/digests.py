"""Digests in JSON: 16 hexadecimal digits, since most readers of JSON round numbers of 64 bits."""

from __future__ import annotations

from typing import Annotated

import msgspec

DigestText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


def digest_text(digest: int) -> DigestText:
    """An unsigned 64-bit digest as JSON has it."""
    return f"{digest:016x}"


def digest_number(text: DigestText) -> int:
    """The digest again. Raises ValueError on what is no digest."""
    return int(text, 16)
