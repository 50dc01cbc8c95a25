"""Digests survive every reader of JSON."""

from __future__ import annotations

import msgspec
import pytest

from inferencecache.schemas.digests import digest_number, digest_text
from inferencecache.schemas.members import ViewedPartition


@pytest.mark.parametrize("digest", [0, 5, 2**53 + 1, 2**64 - 1])
def test_a_digest_is_text_of_one_length_in_json(digest: int) -> None:
    row = msgspec.json.encode(ViewedPartition(digest=digest_text(digest)))
    text = msgspec.json.decode(row)["digest"]
    assert isinstance(text, str)
    assert len(text) == 16
    assert digest_number(msgspec.json.decode(row, type=ViewedPartition).digest or "") == digest


@pytest.mark.parametrize("text", ["", "5", "g" * 16, "A" * 16, "0x" + "1" * 14])
def test_what_is_no_digest_is_refused(text: str) -> None:
    row = msgspec.json.encode({"digest": text})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(row, type=ViewedPartition)
