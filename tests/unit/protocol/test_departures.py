"""A pod that is gone is gone in every generation, also in one that comes later."""

from __future__ import annotations

from inferencecache.core.protocol.departures import REMEMBERED_S, Append, Departures
from inferencecache.schemas.ids import ReplicaId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Layout
from inferencecache.schemas.records import Gone

ONE = Gone(TenantId("t"), ReplicaId("one"), "uid-1")
TWO = Gone(TenantId("t"), ReplicaId("two"), "uid-2")
FIRST = CurrentLayout(1, 2)
SECOND = CurrentLayout(2, 3, older=(Layout(1, 2),))


def test_a_departure_is_said_in_every_partition_of_every_generation() -> None:
    departures = Departures()
    assert departures.told(0.0, SECOND) == []
    places = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert departures.gone(1.0, ONE) == [Append(*place, ONE) for place in places]


def test_recent_departures_are_repeated_into_a_new_generation_and_nowhere_else() -> None:
    departures = Departures()
    departures.told(0.0, FIRST)
    departures.gone(1.0, ONE)
    departures.gone(2.0, TWO)
    departures.gone(3.0, ONE)
    appends = departures.told(4.0, SECOND)
    assert sorted((append.partition, append.record.replica) for append in appends) == [
        (number, replica) for number in range(3) for replica in ("one", "two")
    ]
    assert {append.generation for append in appends} == {2}
    assert departures.told(5.0, SECOND) == []
    assert departures.told(6.0, CurrentLayout(2, 3)) == []


def test_departures_that_the_fold_has_forgotten_are_not_repeated() -> None:
    departures = Departures()
    departures.told(0.0, FIRST)
    departures.gone(1.0, ONE)
    departures.gone(2.0, TWO)
    appends = departures.told(1.5 + REMEMBERED_S, SECOND)
    assert {append.record for append in appends} == {TWO}


def test_after_a_reconnect_recent_departures_are_said_again_everywhere() -> None:
    """What was stored may be lost with the end of a stream [architecture 7, storage lost]."""
    departures = Departures()
    departures.gone(0.0, TWO)
    assert departures.reconnected(0.5) == []
    departures.told(1.0, SECOND)
    departures.gone(2.0 + REMEMBERED_S / 2, ONE)
    places = [(2, 0), (2, 1), (2, 2), (1, 0), (1, 1)]
    both = departures.reconnected(3.0 + REMEMBERED_S / 2)
    assert len(both) == 2 * len(places)
    assert set(both) == {Append(*place, gone) for gone in (TWO, ONE) for place in places}
    assert set(departures.reconnected(1.0 + REMEMBERED_S)) == {Append(*place, ONE) for place in places}
    assert departures.reconnected(3.0 + 2 * REMEMBERED_S) == []


def test_departures_before_the_layout_is_known_are_said_once_it_is() -> None:
    departures = Departures()
    assert departures.gone(0.0, ONE) == []
    assert departures.told(1.0, FIRST) == [Append(1, number, ONE) for number in range(2)]
