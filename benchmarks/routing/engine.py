"""An engine as the design's table assumes it: an LRU cache of prompt blocks and one prefill after the other.

Time is the trace's, in seconds. A request is accounted for when it arrives, since in a queue of first come,
first served nothing that comes later changes what happens to it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.routing.trace import BLOCK_TOKENS, Request, leading


class Served(NamedTuple):
    """What becomes of a request: `removed` go when its prefill starts, `stored` come when it ends."""

    cached_blocks: int
    cached_tokens: int
    arrived_s: float
    started_s: float
    finished_s: float
    stored: Sequence[int]
    removed: Sequence[int]

    @property
    def first_token_s(self) -> float:
        """Time to first token: the wait and the prefill of what was not cached."""
        return self.finished_s - self.arrived_s


class Engine:
    """A cache of `capacity` blocks and a prefill of `rate` tokens a second."""

    def __init__(self, name: str, capacity: int, rate: float) -> None:
        self.name = name
        self.requests = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._capacity = capacity
        self._rate = rate
        self._cache: OrderedDict[int, None] = OrderedDict()
        self._finishes: deque[float] = deque()
        self._free_s = 0.0

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    def serve(self, request: Request, now_s: float) -> Served:
        """Take a request."""
        blocks = request.blocks
        found = leading(blocks, self._cache)
        cached_tokens = min(found * BLOCK_TOKENS, request.tokens)
        for block in reversed(blocks):  # of one prompt its end goes before its beginning
            self._cache[block] = None
            self._cache.move_to_end(block)
        excess = max(0, len(self._cache) - self._capacity)
        removed = [self._cache.popitem(last=False)[0] for _ in range(excess)]
        started_s = max(now_s, self._free_s)
        self._free_s = started_s + (request.tokens - cached_tokens) / self._rate
        self._finishes.append(self._free_s)
        self.requests += 1
        self.prompt_tokens += request.tokens
        self.cached_tokens += cached_tokens
        return Served(found, cached_tokens, now_s, started_s, self._free_s, blocks[found:], removed)

    def backlog_s(self, now_s: float) -> float:
        """How long until everything taken so far is computed."""
        return max(0.0, self._free_s - now_s)

    def outstanding(self, now_s: float) -> int:
        """Requests taken and not yet computed."""
        while self._finishes and self._finishes[0] <= now_s:
            self._finishes.popleft()
        return len(self._finishes)
