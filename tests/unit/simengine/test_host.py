"""Copies on the host outlive blocks on the device, beginnings of prefixes longest."""

from __future__ import annotations

from inferencecache.simengine.host import HostCache

A, B, C, D = (bytes([number]) for number in range(4))


def test_a_copy_is_found_until_its_memory_is_needed() -> None:
    host = HostCache(3)
    assert host.copy([A, B], [A, B]) == []
    assert host.leading([A, B, C]) == 2
    assert host.copy([C], [C]) == []
    assert host.copy([D], [D]) == [B]
    assert host.leading([A, B]) == 1
    assert set(host) == {A, C, D}


def test_the_end_of_a_prefix_goes_before_its_beginning() -> None:
    host = HostCache(3)
    host.copy([A], [A])
    host.copy([A, B, C], [B, C])
    assert host.copy([D], [D]) == [C]


def test_more_blocks_than_there_is_room_for_leave_the_beginning() -> None:
    host = HostCache(2)
    assert host.copy([A, B, C, D], [A, B, C, D]) == [D, C]
    assert len(host) == 2


def test_a_cleared_host_has_nothing() -> None:
    host = HostCache(2)
    host.copy([A], [A])
    host.clear()
    assert host.leading([A]) == 0
