"""A producer is asked once, and again while there is still reason for it."""

from __future__ import annotations

from inferencecache.core.index.fold import ResyncWanted
from inferencecache.core.protocol import resyncs
from inferencecache.core.protocol.resyncs import Resyncs
from inferencecache.schemas.ids import Incarnation, ModelId, ReplicaId, TenantId
from inferencecache.schemas.requests import ResyncRequest


def wanted(replica: str, incarnation: str = "i") -> ResyncWanted:
    request = ResyncRequest("resync", Incarnation(incarnation))
    return ResyncWanted(TenantId("t"), ModelId("m"), ReplicaId(replica), request)


def test_the_same_request_is_sent_again_only_after_a_while() -> None:
    requests = Resyncs()
    assert requests.should_ask(0.0, wanted("a"))
    assert not requests.should_ask(1.9, wanted("a"))
    assert requests.should_ask(1.9, wanted("b"))
    assert requests.should_ask(2.0, wanted("a"))


def test_another_request_to_the_same_replica_is_sent_at_once() -> None:
    requests = Resyncs()
    assert requests.should_ask(0.0, wanted("a"))
    assert requests.should_ask(0.1, wanted("a", "j"))


def test_what_was_asked_long_ago_is_forgotten() -> None:
    requests = Resyncs()
    for number in range(3 * resyncs._MOST_REMEMBERED):
        assert requests.should_ask(number / 1000, wanted(str(number)))
    assert len(requests._asked) <= resyncs._MOST_REMEMBERED
