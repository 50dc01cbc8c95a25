"""What decoding raises of bytes that somebody else wrote.

A value of the wrong form, bytes that are no JSON or MessagePack, and text that is not UTF-8 are all
ValueErrors; what nests too deep for the decoder is not.
"""

from __future__ import annotations

from typing import Final

UNREADABLE: Final = (ValueError, RecursionError)
