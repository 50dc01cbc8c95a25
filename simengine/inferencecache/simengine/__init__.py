"""A simulated inference engine: what people without a GPU develop against.

A prompt waits for its turn (`timing`), finds its longest cached prefix in a paged block cache
(`cache`), is computed in simulated time and answered with made-up tokens (`engine`, `sampling`). What
the cache and its copies on the host (`host`) store and evict leaves as KV events (`events`,
`publisher`) in the words of vLLM (`vllm_form`) or SGLang (`sglang_form`); requests, metrics and health
are HTTP (`server`, `metrics`). The caches and the timing are pure; nothing here knows our hashes of
prefixes, as a real engine does not.
"""

from inferencecache.simengine.cache import Allocation, BlockCache, PromptTooLongError, Stored
from inferencecache.simengine.engine import Engine, EngineSettings

__all__ = ["Allocation", "BlockCache", "Engine", "EngineSettings", "PromptTooLongError", "Stored"]
