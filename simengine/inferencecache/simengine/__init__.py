"""A simulated inference engine: what people without a GPU develop against.

A prompt waits for its turn (`timing`), finds its longest cached prefix in a paged block cache
(`cache`), is computed in simulated time and answered with made-up tokens (`engine`, `sampling`). What
the cache stores and evicts leaves as KV events in vLLM's wire form (`events`, `publisher`); requests,
metrics and health are HTTP (`server`, `metrics`). The cache and the timing are pure; nothing here
knows our hashes of prefixes, as a real engine does not.
"""

from inferencecache.simengine.cache import Allocation, BlockCache, PromptTooLongError, Stored
from inferencecache.simengine.engine import Engine, EngineSettings

__all__ = ["Allocation", "BlockCache", "Engine", "EngineSettings", "PromptTooLongError", "Stored"]
