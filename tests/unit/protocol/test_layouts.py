"""One layout becomes the next by a new generation; what cannot work is refused by name."""

from __future__ import annotations

import pytest

from inferencecache.core.protocol.layouts import (
    MOST_OLDER,
    TooManyGenerationsError,
    TooManyLanesError,
    UnchangedLayoutError,
    prune,
    routers_behind,
    succeed,
)
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import CurrentLayout, Lanes, Layout
from inferencecache.schemas.members import RouterMember


def lanes(model: str, count: int) -> Lanes:
    return Lanes(TenantId("t"), ModelId(model), count)


def test_a_new_generation_stands_before_all_that_still_exist() -> None:
    second = succeed(CurrentLayout(1, 2), partitions=4)
    assert second == CurrentLayout(2, 4, older=(Layout(1, 2),))
    third = succeed(second, lanes=[lanes("m", 3)])
    assert third == CurrentLayout(3, 4, (lanes("m", 3),), older=(Layout(1, 2), Layout(2, 4)))
    assert prune(third) == CurrentLayout(3, 4, (lanes("m", 3),))


def test_lanes_that_are_not_named_stay_and_one_lane_is_none() -> None:
    current = CurrentLayout(1, 8, (lanes("a", 2), lanes("b", 4)))
    assert succeed(current, lanes=[lanes("c", 8), lanes("a", 1)]).lanes == (lanes("b", 4), lanes("c", 8))
    assert succeed(current, partitions=6).lanes == current.lanes


@pytest.mark.parametrize(
    ("partitions", "wanted"), [(4, ()), (None, ()), (None, (lanes("m", 2), lanes("n", 1)))]
)
def test_a_layout_that_would_be_the_same_is_no_new_generation(
    partitions: int | None, wanted: tuple[Lanes, ...]
) -> None:
    with pytest.raises(UnchangedLayoutError, match="7"):
        succeed(CurrentLayout(7, 4, (lanes("m", 2),)), partitions=partitions, lanes=wanted)


def test_more_lanes_than_partitions_are_refused_with_both_ways_out() -> None:
    current = CurrentLayout(1, 4, (lanes("m", 4),))
    with pytest.raises(TooManyLanesError, match=r"--partitions .*--lanes 't/m=2'"):
        succeed(current, partitions=2)
    with pytest.raises(TooManyLanesError, match="5 lanes"):
        succeed(current, lanes=[lanes("m", 5)])


def test_generations_do_not_pile_up() -> None:
    current = CurrentLayout()
    for number in range(MOST_OLDER):
        current = succeed(current, partitions=number + 3)
    with pytest.raises(TooManyGenerationsError, match="prune"):
        succeed(current, partitions=50)
    assert succeed(prune(current), partitions=50).generation == MOST_OLDER + 2


def test_every_router_that_does_not_answer_by_the_generation_in_force_is_behind() -> None:
    rows = [RouterMember(str(generation), generation=generation) for generation in (0, 1, 2, 3)]
    assert [row.id for row in routers_behind(CurrentLayout(2, 4, older=(Layout(),)), rows)] == ["0", "1", "3"]
