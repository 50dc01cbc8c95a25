"""The paged block cache keeps its promises under any order of requests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inferencecache.simengine.cache import Allocation, BlockCache, BlockHash, PromptTooLongError

SIZE = 4


def serve(cache: BlockCache, prompt: Sequence[int], answer: Sequence[int] = ()) -> Allocation:
    """One request from start to end; the returned allocation is released."""
    allocation = cache.allocate(prompt, len(answer))
    assert allocation is not None
    cache.store(allocation)
    for token in answer:
        cache.append(allocation, token)
    cache.store(allocation)
    cache.release(allocation)
    return allocation


def cached(cache: BlockCache) -> set[tuple[int, ...]]:
    return {block.tokens for block in cache}


def test_a_prompt_that_was_served_is_cached_up_to_its_last_full_block() -> None:
    cache = BlockCache(8, SIZE)
    serve(cache, range(10))
    again = serve(cache, range(10))
    assert again.cached_tokens == 8


def test_at_least_one_token_of_a_fully_cached_prompt_is_computed() -> None:
    cache = BlockCache(8, SIZE)
    serve(cache, range(8))
    again = serve(cache, range(8))
    assert again.cached_tokens == 4


def test_the_answer_is_cached_for_the_next_turn_of_the_conversation() -> None:
    cache = BlockCache(8, SIZE)
    serve(cache, range(6), answer=[6, 7, 8])
    next_turn = serve(cache, range(12))
    assert next_turn.cached_tokens == 8


def test_the_longest_unused_prefix_is_evicted_from_its_end() -> None:
    cache = BlockCache(4, SIZE)
    serve(cache, range(8))
    serve(cache, range(100, 108))
    newcomer = serve(cache, range(200, 204))
    assert len(newcomer.evicted) == 1
    assert cached(cache) == {
        tuple(range(4)),
        tuple(range(100, 104)),
        tuple(range(104, 108)),
        tuple(range(200, 204)),
    }


def test_a_prefix_that_is_hit_outlives_one_that_is_not() -> None:
    cache = BlockCache(3, SIZE)
    serve(cache, range(4))
    serve(cache, range(100, 104))
    serve(cache, [*range(4), 4])
    serve(cache, range(200, 208))
    assert tuple(range(4)) in cached(cache)
    assert tuple(range(100, 104)) not in cached(cache)


def test_a_request_waits_while_others_hold_the_memory() -> None:
    cache = BlockCache(4, SIZE)
    running = cache.allocate(range(8), 4)
    assert running is not None
    assert cache.allocate(range(100, 108)) is None
    cache.release(running)
    assert cache.allocate(range(100, 108)) is not None


def test_a_request_that_can_never_fit_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(PromptTooLongError, match="--num-blocks"):
        BlockCache(2, SIZE).allocate(range(8), 1)


def test_a_block_stored_by_two_running_requests_is_announced_once() -> None:
    cache = BlockCache(8, SIZE)
    first, second = cache.allocate(range(9)), cache.allocate([*range(8), 99])
    assert first is not None
    assert second is not None
    assert [len(run.hashes) for run in cache.store(first)] == [2]
    assert cache.store(second) == []
    cache.release(first)
    cache.release(second)
    assert len(cache) == 2
    assert cache.blocks_in_use == 0


def test_a_run_names_its_parent_and_its_tokens() -> None:
    cache = BlockCache(8, SIZE)
    first = cache.allocate(range(8))
    assert first is not None
    [root] = cache.store(first)
    assert root.parent is None
    assert root.tokens == tuple(range(8))
    longer = cache.allocate(range(12))
    assert longer is not None
    [suffix] = cache.store(longer)
    assert suffix.parent == root.hashes[-1]
    assert suffix.tokens == tuple(range(8, 12))


def test_hashes_depend_on_the_root_that_seeds_them() -> None:
    names = []
    for root in (b"one", b"other"):
        cache = BlockCache(2, SIZE, root)
        serve(cache, range(4))
        names.append({block.hash for block in cache})
    assert names[0].isdisjoint(names[1])


def test_clearing_is_refused_while_a_request_runs() -> None:
    cache = BlockCache(4, SIZE)
    running = cache.allocate(range(8))
    assert running is not None
    cache.store(running)
    assert not cache.clear()
    cache.release(running)
    assert cache.clear()
    assert len(cache) == 0
    again = cache.allocate(range(8))
    assert again is not None
    assert again.cached_tokens == 0


def test_more_answer_than_was_asked_room_for_is_an_error() -> None:
    cache = BlockCache(4, SIZE)
    allocation = cache.allocate(range(4))
    assert allocation is not None
    with pytest.raises(ValueError, match="longer than the room"):
        cache.append(allocation, 1)


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
"""Few different tokens, so that prompts share prefixes often."""


class CacheMachine(RuleBasedStateMachine):
    """Random requests; a follower keeps what the events say is cached."""

    @initialize(capacity=st.integers(4, 12))
    def start(self, capacity: int) -> None:
        self.cache = BlockCache(capacity, SIZE)
        self.running: list[tuple[Allocation, int]] = []
        self.told: dict[BlockHash, BlockHash | None] = {}

    @rule(prompt=PROMPTS, answer=st.integers(0, 6))
    def begin(self, prompt: list[int], answer: int) -> None:
        if -(-(len(prompt) + answer) // SIZE) > self.cache.capacity:
            return
        known = cached_chains(self.cache)
        allocation = self.cache.allocate(prompt, answer)
        if allocation is None:
            return
        for hash_ in allocation.evicted:
            del self.told[hash_]
        reusable = [n for n in range(SIZE, len(prompt), SIZE) if tuple(prompt[:n]) in known]
        assert allocation.cached_tokens == max(reusable, default=0)
        self.store(allocation)
        self.running.append((allocation, answer))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token=st.integers(0, 1))
    def generate(self, data: st.DataObject, token: int) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        allocation, left = self.running[index]
        if left:
            self.cache.append(allocation, token)
            self.store(allocation)
            self.running[index] = (allocation, left - 1)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        allocation, _ = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.cache.release(allocation)

    @rule()
    def clear(self) -> None:
        if self.cache.clear():
            assert not self.running
            self.told.clear()

    def store(self, allocation: Allocation) -> None:
        for run in self.cache.store(allocation):
            parent = run.parent
            assert len(run.tokens) == len(run.hashes) * SIZE
            for hash_ in run.hashes:
                assert hash_ not in self.told
                self.told[hash_] = parent
                parent = hash_

    @invariant()
    def events_tell_exactly_what_is_cached(self) -> None:
        assert {block.hash: block.parent for block in self.cache} == self.told

    @invariant()
    def the_parent_of_a_cached_block_is_cached(self) -> None:
        assert all(parent is None or parent in self.told for parent in self.told.values())

    @invariant()
    def blocks_in_use_are_those_of_running_requests(self) -> None:
        held = {block for allocation, _ in self.running for block in allocation.blocks}
        assert self.cache.blocks_in_use == len(held)
        assert len(self.cache) <= self.cache.capacity


def cached_chains(cache: BlockCache) -> set[tuple[int, ...]]:
    """Every cached prefix as the tokens from position 0 on."""
    blocks = {block.hash: block for block in cache}
    chains: set[tuple[int, ...]] = set()
    for block in blocks.values():
        tokens, parent = block.tokens, block.parent
        while parent is not None:
            tokens = blocks[parent].tokens + tokens
            parent = blocks[parent].parent
        chains.add(tokens)
    return chains


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCacheUnderRandomRequests = CacheMachine.TestCase
