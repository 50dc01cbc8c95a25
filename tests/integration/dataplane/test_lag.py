"""An indexer that cannot keep up shows by how much, holds only so much, and loses nothing."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from inferencecache.indexer.metrics import IndexerMetrics
from tests.support.dataplane import DataPlane, has_all
from tests.support.waiting import eventually

BATCHES = 1_500
"""About twice as many as are asked for at a time."""


async def test_a_lagging_indexer_says_so_and_loses_nothing(plane: DataPlane) -> None:
    indexer = await plane.owner()
    router = await plane.follower()
    registry = CollectorRegistry()
    IndexerMetrics(registry, indexer.log, indexer.partitions)
    producer = await plane.producer("r1")
    await producer.begin()
    state = indexer.partitions[0].state
    assert state is not None
    held = state.folding._is_held
    state.folding._is_held = lambda: True

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"inferencecache_indexer_{name}", labels) or 0.0

    for number in range(BATCHES):
        await producer.store(number, count=1)
    await eventually(lambda: value("lag_seconds", partition="1.0") > 1)
    await eventually(lambda: value("queue_size", queue="unfolded_messages") > 0)
    assert value("pending_messages", partition="1.0") > 0
    assert value("queue_size", queue="unfolded_messages") <= value("queue_limit", queue="unfolded_messages")
    assert not indexer.ready
    state.folding._is_held = held
    state.folding.release()
    await eventually(has_all(router, producer), within_s=30)
    await eventually(lambda: value("lag_seconds", partition="1.0") == 0)
    assert value("pending_messages", partition="1.0") == 0
    assert producer.requests == []
