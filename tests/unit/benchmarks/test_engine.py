"""The model of an engine does by hand what the design's table assumes."""

from __future__ import annotations

from benchmarks.routing.baselines import LeastOutstanding, RoundRobin
from benchmarks.routing.engine import Engine
from benchmarks.routing.trace import Request


def test_a_prompt_waits_for_the_one_before_and_computes_what_is_not_cached() -> None:
    engine = Engine("e", capacity=10, rate=1000)
    first = engine.serve(Request(0, 1000, (1, 2)), 0.0)
    assert (first.cached_tokens, first.started_s, first.finished_s) == (0, 0.0, 1.0)
    assert (list(first.stored), list(first.removed)) == ([1, 2], [])
    second = engine.serve(Request(0.5, 1536, (1, 2, 3)), 0.5)
    assert (second.cached_blocks, second.cached_tokens, second.started_s) == (2, 1024, 1.0)
    assert second.finished_s == 1.512
    assert second.first_token_s == 1.012
    assert list(second.stored) == [3]
    assert engine.backlog_s(0.5) == 1.012
    assert [engine.outstanding(at_s) for at_s in (0.5, 1.0, 2.0)] == [2, 1, 0]
    assert (engine.requests, engine.prompt_tokens, engine.computed_tokens) == (2, 2536, 1512)


def test_a_last_block_that_is_part_full_counts_as_what_it_holds() -> None:
    engine = Engine("e", capacity=10, rate=1000)
    prompt = Request(0, 600, (1, 2))
    engine.serve(prompt, 0.0)
    assert engine.serve(prompt, 9.0).cached_tokens == 600


def test_what_was_used_least_recently_goes_first_and_of_a_prompt_its_end() -> None:
    engine = Engine("e", capacity=4, rate=1000)
    engine.serve(Request(0, 1024, (1, 2)), 0.0)
    engine.serve(Request(0, 1024, (3, 4)), 0.0)
    assert engine.serve(Request(0, 512, (1,)), 0.0).cached_blocks == 1
    assert list(engine.serve(Request(0, 1536, (5, 6, 7)), 0.0).removed) == [2, 4, 3]
    assert engine.serve(Request(0, 1024, (1, 2)), 0.0).cached_blocks == 1


def test_the_baselines_take_turns_and_the_least_backlog() -> None:
    engines = [Engine(name, 10, 1000) for name in "abc"]
    turns = RoundRobin(engines)
    assert [turns.choose(0.0).name for _ in range(4)] == ["a", "b", "c", "a"]
    least = LeastOutstanding(engines)
    for number, name in enumerate(("a", "b", "c")):
        assert least.choose(0.0).name == name
        least.choose(0.0).serve(Request(0, 3000 - 1000 * number, (number,)), 0.0)
    assert least.choose(0.0).name == "c"
    assert least.choose(2.5).name == "b", "both idle; of equals the one that served as little and comes first"
