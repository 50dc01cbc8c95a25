"""Who may lead, judged by each process's own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inferencecache.controller.kube.leases import LeaseHeld, LeaseTimes

TIMES = LeaseTimes(duration_s=15.0)
WALL = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def stored(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "lock"}, "spec": spec}


@pytest.mark.rule("CTL-07")
def test_a_lease_is_taken_only_when_it_stood_still_for_its_whole_duration() -> None:
    mine, theirs = LeaseHeld("a", TIMES), LeaseHeld("b", TIMES)
    spec = mine.wanted(None, 0.0, WALL)
    assert spec is not None
    assert spec["holderIdentity"] == "a"
    assert theirs.wanted(stored(spec), 100.0, WALL) is None, "seen for the first time"
    assert theirs.wanted(stored(spec), 114.9, WALL) is None
    renewed = mine.wanted(stored(spec), 10.0, WALL + timedelta(seconds=10))
    assert renewed is not None
    assert theirs.wanted(stored(renewed), 115.0, WALL) is None, "it moved"
    taken = theirs.wanted(stored(renewed), 130.0, WALL)
    assert taken is not None
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 1)
    assert mine.wanted(stored(taken), 20.0, WALL) is None


@pytest.mark.rule("CTL-07")
@pytest.mark.parametrize("wrong", [timedelta(hours=-5), timedelta(hours=5)])
def test_a_wrong_wall_clock_neither_gives_nor_takes_the_lease(wrong: timedelta) -> None:
    mine, theirs = LeaseHeld("a", TIMES), LeaseHeld("b", TIMES)
    spec = mine.wanted(None, 0.0, WALL + wrong)
    assert spec is not None
    assert theirs.wanted(stored(spec), 0.0, WALL) is None
    assert theirs.wanted(stored(spec), 14.0, WALL) is None
    assert theirs.wanted(stored(spec), 15.0, WALL) is not None


def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "t", "leaseTransitions": 3}
    spec = LeaseHeld("b", TIMES).wanted(stored(freed), 0.0, WALL)
    assert spec is not None
    assert spec["leaseTransitions"] == 4


def test_a_renewal_keeps_when_it_was_acquired() -> None:
    held = LeaseHeld("a", TIMES)
    spec = held.wanted(None, 0.0, WALL)
    assert spec is not None
    again = held.wanted(stored(spec), 2.0, WALL + timedelta(seconds=2))
    assert again is not None
    assert again["acquireTime"] == spec["acquireTime"] != again["renewTime"]
    assert again["leaseTransitions"] == spec["leaseTransitions"] == 0
