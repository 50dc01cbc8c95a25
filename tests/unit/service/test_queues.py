"""Every queue of a process under the same two names."""

from __future__ import annotations

from inferencecache.core.service import Queue, queue_metrics


def test_a_queue_has_a_size_and_a_limit_by_its_name() -> None:
    size, limit = queue_metrics("indexer", [Queue("outbox_records", 3, 10), Queue("untold_bytes", 0, 7)])
    assert (size.name, limit.name) == (
        "inferencecache_indexer_queue_size",
        "inferencecache_indexer_queue_limit",
    )
    assert [(sample.labels, sample.value) for sample in size.samples] == [
        ({"queue": "outbox_records"}, 3),
        ({"queue": "untold_bytes"}, 0),
    ]
    assert [sample.value for sample in limit.samples] == [10, 7]
