"""How often routers are looked at while they have not read what was published."""

from __future__ import annotations

import itertools

import pytest

from inferencecache.controller.intent.propagation import Awaiting, Standing
from inferencecache.core.kube.conditions import Verdict
from inferencecache.core.kube.kinds import ObjectKey

KEY = ObjectKey("team-a", "p")
FIRST = Standing("uid", generation=1, revision=7)


@pytest.mark.parametrize("reason", ["AwaitingRouters", "NoRouters", "Publishing"])
def test_the_longer_nothing_becomes_of_an_object_the_less_often_it_is_looked_at(reason: str) -> None:
    awaiting, verdict = Awaiting(), Verdict("False", reason, "")
    waits = [awaiting.next_s(KEY, FIRST, verdict) or 0.0 for _ in range(60)]
    assert waits[0] <= 0.25
    assert all(later <= 1.5 * sooner for sooner, later in itertools.pairwise(waits))
    looks_in_an_hour = sum(elapsed < 3600 for elapsed in itertools.accumulate([*waits, *[waits[-1]] * 1000]))
    assert looks_in_an_hour < 400
    changed = FIRST._replace(generation=2)
    assert awaiting.next_s(KEY, changed, verdict) == waits[0], "what is new is awaited anew"


def test_what_is_settled_is_not_looked_at_again() -> None:
    awaiting = Awaiting()
    waiting = Verdict("False", "AwaitingRouters", "")
    first = awaiting.next_s(KEY, FIRST, waiting)
    awaiting.next_s(KEY, FIRST, waiting)
    assert awaiting.next_s(KEY, FIRST, Verdict("True", "Acknowledged", "")) is None
    assert awaiting.next_s(KEY, FIRST, waiting) == first
