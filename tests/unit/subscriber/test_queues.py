"""What waits in a sidecar is bounded, and how much waits is on its metrics page."""

from __future__ import annotations

from inferencecache.kvevent_subscriber.settings import read_settings
from inferencecache.kvevent_subscriber.sidecar import Sidecar


async def test_every_bound_of_a_sidecars_queues_is_told() -> None:
    settings = read_settings(
        ["--replica-id=r", "--model-id=m", "--tenant-id=t", "--insecure-nats"], {"POD_UID": "uid-1"}
    )
    sidecar = Sidecar(settings)
    queues = {queue.name: (queue.size, queue.limit) for queue in sidecar._queues()}
    sidecar._context.destroy(linger=0)
    assert queues == {
        "outbox_records": (0, 1024),
        "held_messages": (0, 10_000),
        "held_bytes": (0, 16 * 1024 * 1024),
        "orphan_blocks": (0, 16_384),
        "orphan_tokens": (0, 1 << 20),
    }
