"""What a reader of deltas takes, whoever wrote it."""

from __future__ import annotations

import struct

import pytest

from inferencecache.schemas.deltas import UnreadableDeltaError, decode_delta, encode_delta
from tests.unit.schemas.samples import DELTA


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("statistic", [0.5, 0.25, 0.75], ids=["hit rate", "pressure", "KV usage"])
def test_statistics_that_are_no_finite_number_make_a_delta_unreadable(statistic: float, value: float) -> None:
    payload = encode_delta(DELTA)
    assert decode_delta(payload) == DELTA
    written = struct.pack(">d", statistic)
    assert payload.count(written) == 1
    with pytest.raises(UnreadableDeltaError):
        decode_delta(payload.replace(written, struct.pack(">d", value)))
