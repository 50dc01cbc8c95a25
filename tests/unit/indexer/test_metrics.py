"""What the indexer exports of the index: owned partitions only, one count a distinct key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from inferencecache.core.index.fold import Fold
from inferencecache.indexer.metrics import IndexerMetrics
from inferencecache.schemas.ids import PROBE_TENANT
from tests.oracle.logs import LogWriter, evicted
from tests.oracle.stories import write


class Index:
    """One partition's fold behind the metrics of an indexer."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.log = LogWriter()
        self._folded = 0
        self.partition = _Partition(self.fold)
        self.registry = CollectorRegistry()
        log = SimpleNamespace(publisher=SimpleNamespace(in_flight=0))
        IndexerMetrics(self.registry, cast("Any", log), cast("Any", [self.partition]))
        self.log.claim()
        self.log.tick(0)

    def given(self, state: str) -> None:
        write(self.log, state)
        self.catch_up()

    def catch_up(self) -> None:
        for message in self.log.messages[self._folded :]:
            self.fold.fold(message)
        self._folded = len(self.log.messages)
        self.partition.evictions = self.fold.evictions
        self.partition.tenant_evictions = self.fold.tenant_evictions

    def entries(self) -> dict[str, float]:
        return {
            sample.labels["model"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "inferencecache_index_entries"
        }

    def series(self, name: str) -> list[dict[str, str]]:
        return [
            sample.labels
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        ]


class _Partition:
    """What the metrics read of a partition."""

    def __init__(self, fold: Fold) -> None:
        owner = SimpleNamespace(deltas_stored=0, bytes_stored=0)
        snapshots = SimpleNamespace(referenced_count=0, dropped_count=0)
        folding = SimpleNamespace(fold=fold, folded=0, dropped={}, pending=0, waiting=0, lag_s=lambda: 0.0)
        self.key = "1.0"
        self.state = SimpleNamespace(
            folding=folding, telling=SimpleNamespace(owner=owner, snapshots=snapshots)
        )
        self.owned = True
        self.evictions = fold.evictions
        self.tenant_evictions = fold.tenant_evictions
        self.resyncs_sent: dict[str, int] = {}
        self.restored = self.restorations_from_log = 0


@pytest.fixture
def index() -> Index:
    return Index()


@pytest.mark.rule("IDX-167", "IDX-168")
def test_a_model_counts_its_distinct_keys_over_tenants_schemes_and_adapters(index: Index) -> None:
    index.given(
        "r1{p:1}; r2{p:1}; r1{p:1} tenant=other; r1{p:1} scheme=s; r1{p:1} adapter=a; r1{q:1} model=m2"
    )
    assert index.entries() == {"m": 4, "m2": 1}
    index.given("r1{p:1} tier=2")
    assert index.entries() == {"m": 4, "m2": 1}


@pytest.mark.rule("IDX-169", "IDX-170")
def test_a_model_whose_last_key_goes_stays_at_0(index: Index) -> None:
    index.given("r{p:1}")
    assert index.entries() == {"m": 1}
    index.log.report("r", evicted(b"p"))
    index.catch_up()
    assert index.entries() == {"m": 0}


@pytest.mark.rule("IDX-188", "WIRE-047")
def test_the_reserved_tenant_is_in_no_gauge(index: Index) -> None:
    index.given(f"r{{p:1}} tenant={PROBE_TENANT}")
    assert index.entries() == {}


@pytest.mark.rule("OPS-38")
def test_only_the_owner_of_a_partition_exports_it(index: Index) -> None:
    index.given("r{p:1}")
    assert index.entries() == {"m": 1}
    index.partition.owned = False
    assert index.entries() == {"m": 0}


@pytest.mark.rule("IDX-171")
def test_an_eviction_has_no_series_before_the_first(index: Index) -> None:
    index.given("r{p:1}")
    names = ("inferencecache_index_evictions_total", "inferencecache_tenant_evictions_total")
    assert [index.series(name) for name in names] == [[], []]
    index.log.budget(1)
    index.given("r{q:1}")
    assert index.series(names[0]) == [{"algorithm": "lru", "reason": "cap"}]
