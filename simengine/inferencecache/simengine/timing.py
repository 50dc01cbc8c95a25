"""How long computing takes: prompts one after the other, answers beside each other.

Prefill is first come, first served at a fixed rate, the model in which a busy engine makes later
prompts wait. Decoding takes a fixed time a token for each request. All times are seconds of a clock
that the caller reads; nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speed:
    """Tokens a second, divided out by `scale`: with 10, a simulated second lasts a tenth."""

    prefill_tokens_per_second: float = 8000.0
    decode_tokens_per_second: float = 50.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if min(self.prefill_tokens_per_second, self.decode_tokens_per_second, self.scale) <= 0:
            raise ValueError(f"{self}: every rate must be above 0")

    def decode_time(self, tokens: int) -> float:
        """Seconds that `tokens` tokens after the first one take; the first comes with the prefill."""
        return tokens / (self.decode_tokens_per_second * self.scale)


class PrefillQueue:
    """When a prompt is computed, given all that came before it."""

    def __init__(self, speed: Speed) -> None:
        self._rate = speed.prefill_tokens_per_second * speed.scale
        self._free_at = 0.0

    def finish(self, ready_at: float, tokens: int) -> float:
        """Time at which `tokens` uncached tokens, ready at `ready_at`, are computed."""
        self._free_at = max(self._free_at, ready_at) + tokens / self._rate
        return self._free_at
