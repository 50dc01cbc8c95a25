"""What a fuzz target is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

Mutate = Callable[[Random, bytes], bytes]


class Target(NamedTuple):
    """`run` raises when the product misbehaves over an input; it leaves nothing behind for the next one.

    `seeds` are inputs that the product takes, as a rule; `mutate` makes another input of one and knows its
    structure. `close` ends what `run` has started for all inputs together.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    close: Callable[[], None] = lambda: None
