"""The sidecar reads what the simulated engine says, in every engine's words, and comes to the same cache."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.kvevent_subscriber.reports import Added, Cleared, Evicted
from inferencecache.simengine.engine import Engine, EngineSettings
from inferencecache.simengine.events import Event, Form
from inferencecache.simengine.sglang_form import SglangForm
from inferencecache.simengine.timing import Speed
from inferencecache.simengine.vllm_form import VllmForm
from tests.support.waiting import a_turn
from tests.unit.subscriber.frames import Listener

SIZE = 4
ADAPTERS = ("sql", "chat")
FORMS: dict[str, Form] = {
    "vllm map": VllmForm(SIZE, adapters=ADAPTERS),
    "vllm map bytes": VllmForm(SIZE, hash_kind="bytes", adapters=ADAPTERS),
    "vllm map, host with tokens": VllmForm(SIZE, describes_host=True, adapters=ADAPTERS),
    "vllm tuple": VllmForm(SIZE, encoding="tuple", adapters=ADAPTERS, host_medium="cpu"),
    "vllm tuple bytes": VllmForm(SIZE, encoding="tuple", hash_kind="bytes", adapters=ADAPTERS),
    "sglang map": SglangForm(SIZE, adapters=ADAPTERS),
    "sglang tuple": SglangForm(SIZE, encoding="tuple"),
}
NOT_UNDERSTOOD = {
    "malformed_batches",
    "malformed_events",
    "unknown_events",
    "orphan_events",
    "token_mismatch",
    "block_size_mismatch",
    "no_tokens",
    "ignored_group",
    "ignored_medium",
    "unmapped_adapter",
    "opaque_blocks",
}

Held = dict[tuple[str, bytes], int]


class Wire:
    """Takes the place of the publisher: the sidecar's event path hears every message."""

    def __init__(self, form: Form) -> None:
        self.listener = Listener()
        self._form = form
        self._sent = 0

    def __call__(self, events: Sequence[Event]) -> float:
        number = self._sent.to_bytes(8, "big")
        self._sent += 1
        self.listener.hear(b"kv-events", number, self._form.payload(events, float(self._sent)))
        return float(self._sent)

    @property
    def held(self) -> Held:
        """Tier by adapter and key, as an index would have it."""
        held: Held = {}
        for report in self.listener.raw:
            match report:
                case Added(adapter, tier, keys):
                    held |= {(adapter, key): tier for key in keys}
                case Evicted(adapter, keys):
                    for key in keys:
                        held.pop((adapter, key), None)
                case Cleared():
                    held.clear()
        return held


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return FORMS[request.param]


def adapters_of(form: Form) -> tuple[str, ...]:
    return ("", *ADAPTERS) if form is not FORMS["sglang tuple"] else ("",)


def true_cache(engine: Engine, served: Sequence[tuple[str, Sequence[int]]]) -> Held:
    """What the engine holds, by our keys, given everything it served."""
    on_device, on_host = {block.hash for block in engine.cache}, set(engine.host)
    true: Held = {}
    for adapter, tokens in served:
        chain = engine.cache.hashes_of(tokens, adapter)
        for hash_, key in zip(chain, prefix_digests(tokens, SIZE), strict=True):
            if hash_ in on_device:
                true[adapter, key] = 1
            elif hash_ in on_host:
                true[adapter, key] = 2
    return true


async def serve(engine: Engine, prompt: Sequence[int], adapter: str) -> list[int]:
    usage = engine.usage_for(prompt, 6)
    pieces = [piece async for piece in engine.generate(prompt, 6, usage, adapter=adapter)]
    return [*prompt, *(token for piece in pieces for token in piece)]


@pytest.mark.parametrize("host_blocks", [0, 40])
async def test_the_sidecar_comes_to_the_cache_that_the_engine_has(form: Form, host_blocks: int) -> None:
    wire = Wire(form)
    settings = EngineSettings(
        num_blocks=20, host_blocks=host_blocks, block_size=SIZE, speed=Speed(scale=10_000), hash_root=b"r"
    )
    engine = Engine(settings, wire)
    random = Random(7)
    conversations: dict[tuple[str, int], list[int]] = {}
    served: list[tuple[str, Sequence[int]]] = []
    for turn in range(60):
        adapter = random.choice(adapters_of(form))
        which = adapter, random.randrange(4)
        before = conversations.get(which, [which[1]] * 3)
        said = await serve(engine, [*(before if len(before) < 50 else before[:9]), turn], adapter)
        conversations[which] = said
        served.append((adapter, said))
        if turn == 40:
            assert engine.reset()
        if turn % 7 == 0 or turn > 38:
            assert wire.held == true_cache(engine, served)
    counters = wire.listener.counters()
    assert not NOT_UNDERSTOOD & counters.keys()
    tiers = set(wire.held.values())
    assert tiers == ({1, 2} if host_blocks else {1})


async def test_host_copies_spare_computing(form: Form) -> None:
    settings = EngineSettings(
        num_blocks=6, host_blocks=40, block_size=SIZE, speed=Speed(scale=10_000), hash_root=b"r"
    )
    engine = Engine(settings, Wire(form))
    await serve(engine, range(16), "")
    await serve(engine, range(100, 116), "")
    usage = engine.usage_for(range(16), 1)
    async for _ in engine.generate(range(16), 1, usage):
        await a_turn()
    assert (usage.cached_tokens, usage.host_tokens) == (12, 12)
    assert engine.counters.host_tokens == 12
