"""Records whose numbers are as large as their fields allow [IDX sections 2 and 4]."""

from __future__ import annotations

import tracemalloc

import pytest

from inferencecache.core.index.fold import Fold
from inferencecache.core.index.reading import Scope
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, TenantId
from inferencecache.schemas.records import Evicted, TenantPolicy
from tests.oracle.logs import LogWriter, stored


@pytest.fixture
def writer() -> LogWriter:
    writer = LogWriter()
    writer.sweep_interval_s = 1
    writer.claim()
    writer.tick()
    return writer


def folded(writer: LogWriter) -> Fold:
    fold = Fold(1 << 8)
    for message in writer.messages:
        fold.fold(message)
    return fold


@pytest.mark.rule("WIRE-107")
def test_an_eviction_of_very_many_empty_hashes_removes_the_one_and_takes_no_room(writer: LogWriter) -> None:
    writer.report("r", stored([b""], [16]), stored([b"p" * 8], [16]))
    fold = folded(writer)
    tracemalloc.start()
    try:
        fold.fold(writer.report("r", Evicted(AdapterId(""), 0, b"", 2**62)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fold.view.distinct_keys(TenantId("t"), ModelId("m")) == 1
    assert peak < 1 << 20


@pytest.mark.rule("IDX-54")
@pytest.mark.parametrize("ttl_us", [2**62, 2**63 - 1, 2**64 - 1])
def test_a_time_to_live_without_end_keeps_what_is_held(writer: LogWriter, ttl_us: int) -> None:
    writer.apply_policy([TenantPolicy(TenantId("t"), ttl_us)])
    writer.report("r", stored([b"p" * 8], [16]))
    for _ in range(3):
        writer.tick(3600)
    fold = folded(writer)
    assert fold.view.members(Scope(TenantId("t"), ModelId("m"), HashScheme("vllm"))) == ("r",)
