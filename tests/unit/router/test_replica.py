"""What a router tells the other members of its views."""

from __future__ import annotations

from inferencecache.core.log import Log
from inferencecache.core.service import NatsSettings
from inferencecache.router.replica import PartitionReplica


def test_a_view_that_is_not_proven_is_told_as_incomplete_and_without_a_digest() -> None:
    log = Log(NatsSettings("nats://127.0.0.1:4222", insecure=True), "test")
    replica = PartitionReplica(log, 1, 0, on_change=lambda: None, on_missing=lambda: None)
    replica.follower.complete = True
    replica.view.digest = 5
    assert (replica.row().complete, replica.row().digest) == (True, "0000000000000005")
    replica.view.proven = False
    assert (replica.row().complete, replica.row().digest) == (False, None)
