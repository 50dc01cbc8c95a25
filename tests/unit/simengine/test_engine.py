"""An engine serves in order, in time, and says what its cache does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from inferencecache.simengine.cache import PromptTooLongError
from inferencecache.simengine.engine import Engine, EngineSettings, Usage
from inferencecache.simengine.events import AllCleared, BlocksRemoved, BlocksStored, Event
from inferencecache.simengine.timing import Speed
from tests.support.waiting import a_turn

FAST = Speed(scale=1000)


class Recorder:
    """Takes the place of the publisher."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []

    def __call__(self, events: Sequence[Event]) -> float:
        self.batches.append(list(events))
        return float(len(self.batches))

    @property
    def events(self) -> list[Event]:
        return [event for batch in self.batches for event in batch]


async def complete(engine: Engine, prompt: Sequence[int], max_tokens: int = 4) -> tuple[list[int], Usage]:
    usage = engine.usage_for(prompt, max_tokens)
    tokens = [token async for piece in engine.generate(prompt, max_tokens, usage) for token in piece]
    return tokens, usage


async def test_the_same_prompt_gets_the_same_answer_from_every_engine() -> None:
    one, other = (Engine(EngineSettings(speed=FAST, hash_root=root), Recorder()) for root in (b"1", b"2"))
    assert (await complete(one, range(20)))[0] == (await complete(other, range(20)))[0]


async def test_a_second_turn_finds_prompt_and_answer_cached() -> None:
    engine = Engine(EngineSettings(speed=FAST), Recorder())
    prompt = list(range(100, 130))
    answer, first = await complete(engine, prompt, 18)
    _, second = await complete(engine, [*prompt, *answer, 1, 2, 3], 4)
    assert first.cached_tokens == 0
    assert second.cached_tokens == 48


async def test_blocks_are_announced_when_they_are_computed() -> None:
    record = Recorder()
    engine = Engine(EngineSettings(speed=FAST, block_size=4), record)
    _, usage = await complete(engine, range(100, 110), 3)
    stored = [event.run for event in record.events if isinstance(event, BlocksStored)]
    assert [len(run.hashes) for run in stored] == [2, 1]
    assert stored[1].parent == stored[0].hashes[-1]
    assert usage.stored_at == 1.0


async def test_evictions_are_announced_before_the_store_that_caused_them() -> None:
    record = Recorder()
    engine = Engine(EngineSettings(num_blocks=2, block_size=4, speed=FAST), record)
    await complete(engine, range(6), 2)
    await complete(engine, range(100, 106), 2)
    kinds = [type(event) for event in record.events]
    assert kinds == [BlocksStored, BlocksStored, BlocksRemoved, BlocksStored, BlocksStored]


async def test_prompts_are_computed_one_after_the_other() -> None:
    engine = Engine(EngineSettings(speed=Speed(prefill_tokens_per_second=10_000)), Recorder())
    usages = [usage for _, usage in await asyncio.gather(*(complete(engine, [n] * 500, 1) for n in range(3)))]
    began = min(usage.arrived_at for usage in usages)
    for place, usage in enumerate(sorted(usages, key=lambda usage: usage.first_token_at), 1):
        assert usage.first_token_at - began >= place * 0.05 - 0.001


async def test_load_is_counted_while_it_lasts() -> None:
    engine = Engine(EngineSettings(speed=Speed(prefill_tokens_per_second=2_000)), Recorder())
    tasks = [asyncio.create_task(complete(engine, [n] * 100, 1)) for n in range(3)]
    while engine.counters.running + engine.counters.waiting < 3:
        await a_turn()
    assert (engine.counters.running, engine.counters.waiting) == (1, 2)
    await asyncio.gather(*tasks)
    assert (engine.counters.running, engine.counters.waiting, engine.counters.finished) == (0, 0, 3)


async def test_a_request_waits_for_memory_that_others_hold() -> None:
    engine = Engine(EngineSettings(num_blocks=4, block_size=4, speed=FAST), Recorder())
    answers = await asyncio.gather(*(complete(engine, [n] * 8, 8) for n in range(4)))
    assert [usage.completion_tokens for _, usage in answers] == [8] * 4
    assert engine.cache.blocks_in_use == 0


async def test_a_cancelled_request_frees_its_blocks_and_its_turn() -> None:
    engine = Engine(EngineSettings(speed=Speed(prefill_tokens_per_second=100)), Recorder())
    tasks = [asyncio.create_task(complete(engine, [n] * 1000, 1)) for n in range(2)]
    while engine.counters.running + engine.counters.waiting < 2:
        await a_turn()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (engine.counters.running, engine.counters.waiting, engine.cache.blocks_in_use) == (0, 0, 0)


async def test_a_reset_forgets_the_cache_and_says_so() -> None:
    record = Recorder()
    engine = Engine(EngineSettings(speed=FAST), record)
    await complete(engine, range(40))
    assert engine.reset()
    assert record.events[-1] == AllCleared()
    _, usage = await complete(engine, range(40))
    assert usage.cached_tokens == 0


async def test_blocks_of_one_adapter_are_of_no_use_to_another() -> None:
    engine = Engine(EngineSettings(speed=FAST), Recorder())
    for adapter, cached in (("", 0), ("sql", 0), ("sql", 32), ("chat", 0), ("", 32)):
        usage = engine.usage_for(range(40), 1)
        async for _ in engine.generate(range(40), 1, usage, adapter=adapter):
            pass
        assert usage.cached_tokens == cached


async def test_a_prompt_larger_than_the_cache_is_refused() -> None:
    engine = Engine(EngineSettings(num_blocks=2, block_size=4, speed=FAST), Recorder())
    with pytest.raises(PromptTooLongError):
        engine.usage_for(range(8), 1)
