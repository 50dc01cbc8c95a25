"""A second implementation of the index, written from the rules with dicts and loops only.

It shares no code with `inferencecache.core.index` and has no idea of speed: what the flat table, its
kernels, the fold, the snapshots and the deltas answer is right when this says the same.
"""

from __future__ import annotations
