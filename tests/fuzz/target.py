"""What a fuzz target is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

Mutate = Callable[[Random, bytes], bytes]


class Target(NamedTuple):
    """`run` raises when the product misbehaves over an input; it leaves nothing behind for the next one.

    `seeds` are inputs that the product takes, as a rule; `mutate` makes another input of one and knows its
    structure. `parts` cuts an input where it can be cut and is still one, the pieces in a row being the
    input. `close` ends what `run` has started for all inputs together.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    parts: Callable[[bytes], Sequence[bytes]] = lambda data: [data]
    close: Callable[[], None] = lambda: None
