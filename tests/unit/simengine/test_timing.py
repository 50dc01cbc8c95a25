"""Prompts are computed in order at a fixed rate."""

from __future__ import annotations

import pytest

from inferencecache.simengine.timing import PrefillQueue, Speed


def test_a_prompt_waits_for_those_before_it() -> None:
    queue = PrefillQueue(Speed(prefill_tokens_per_second=1000))
    assert queue.finish(10.0, 500) == 10.5
    assert queue.finish(10.1, 500) == 11.0
    assert queue.finish(20.0, 100) == pytest.approx(20.1)


def test_a_fully_cached_prompt_still_waits_for_its_turn() -> None:
    queue = PrefillQueue(Speed(prefill_tokens_per_second=1000))
    queue.finish(0.0, 1000)
    assert queue.finish(0.2, 0) == 1.0


def test_the_scale_divides_every_time() -> None:
    speed = Speed(prefill_tokens_per_second=1000, decode_tokens_per_second=10, scale=10)
    assert PrefillQueue(speed).finish(0.0, 1000) == pytest.approx(0.1)
    assert speed.decode_time(10) == pytest.approx(0.1)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Speed(scale=0)
