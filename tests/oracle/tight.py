"""Lets a small state take the ways that only large ones take: samples, full columns, many chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from inferencecache.core.index import eviction, kernels, snapshot, victims
from tests.oracle import model


@contextmanager
def tight(is_tight: bool = True) -> Iterator[None]:
    """Within it, everything that is done in portions is done in the smallest ones, if it `is_tight`."""
    with ExitStack() as stack:
        for module, name, value in (
            (victims, "_ALL", 1),
            (victims, "_SAMPLE", 8),
            (victims, "_RANK", 2),
            (victims, "_COLUMN", 1),
            (eviction, "_SWEPT", kernels.STRETCH),
            (eviction, "MOST_VICTIMS", 1),
            (model, "MOST_VICTIMS", 1),
            (snapshot, "CHUNK_BYTES", 64),
            (snapshot, "_HOLDS", 3),
            (snapshot, "_NAMES", 2),
        ):
            if is_tight:
                stack.enter_context(patch.object(module, name, value))
        yield
