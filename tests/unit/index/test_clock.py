"""Log time against clocks that are wrong [architecture, section 2]."""

from __future__ import annotations

import pytest

from inferencecache.core.index.clock import INT64_MIN, SECOND_US, LogClock

T0 = 1_800_000_000 * SECOND_US


def started() -> LogClock:
    clock = LogClock()
    assert clock.tick(T0, T0 * 1000)
    return clock


@pytest.mark.parametrize(("wall_us", "stamp_us"), [(T0, T0 + 5), (T0 + 5, T0)])
def test_time_starts_with_the_earlier_of_the_two_clocks(wall_us: int, stamp_us: int) -> None:
    clock = LogClock()
    assert clock.tick(wall_us, stamp_us * 1000)
    assert clock.time_us == T0
    assert not clock.tick(wall_us, stamp_us * 1000)


@pytest.mark.parametrize("wrong_us", [-3600 * SECOND_US, 0, 3600 * SECOND_US])
@pytest.mark.parametrize("which", ["owner", "server"])
def test_one_wrong_clock_neither_stops_nor_drives_time(wrong_us: int, which: str) -> None:
    clock = started()
    for second in range(1, 101):
        right = T0 + second * SECOND_US
        wall, stamp = (right + wrong_us, right) if which == "owner" else (right, right + wrong_us)
        clock.tick(wall, stamp * 1000)
    assert clock.time_us == T0 + 100 * SECOND_US


def test_time_catches_up_at_double_speed() -> None:
    clock = started()
    for second in range(101, 106):
        clock.tick(T0 + second * SECOND_US, (T0 + second * SECOND_US) * 1000)
    assert clock.time_us == T0 + 10 * SECOND_US


def test_time_never_goes_back() -> None:
    clock = started()
    clock.tick(T0 - SECOND_US, (T0 - SECOND_US) * 1000)
    assert clock.time_us == T0


@pytest.mark.parametrize(
    ("after_us", "expected_us"), [(-5, 0), (0, 0), (700_000, 700_000), (9 * SECOND_US, 2 * SECOND_US)]
)
def test_a_message_is_at_most_two_seconds_behind_the_last_tick(after_us: int, expected_us: int) -> None:
    assert started().message_time((T0 + after_us) * 1000) == T0 + expected_us


def test_before_time_starts_every_time_is_zero() -> None:
    clock = LogClock()
    assert clock.message_time(T0 * 1000) == 0
    assert clock.observed(0, 5000) == 0
    assert clock.literal(T0, 0) == 0


@pytest.mark.rule("IDX-18", "IDX-19", "WIRE-093")
@pytest.mark.parametrize(
    ("timestamp_us", "expected_us"),
    [
        (0, 7),
        (-1, -1),
        (T0 - 3600 * SECOND_US, T0 - 3600 * SECOND_US),
        (T0 + 5 * SECOND_US, T0 + 5 * SECOND_US),
        (T0 + 5 * SECOND_US + 1, 7),
        (-(2**70), INT64_MIN),
    ],
)
def test_a_producers_timestamp_is_literal_unless_far_ahead(timestamp_us: int, expected_us: int) -> None:
    assert started().literal(timestamp_us, 7) == expected_us


@pytest.mark.parametrize(("age_ms", "expected_us"), [(1500, T0 - 1_500_000), (-5, T0), (2**64, INT64_MIN)])
def test_an_age_counts_back_from_the_message(age_ms: int, expected_us: int) -> None:
    assert started().observed(T0, age_ms) == expected_us
