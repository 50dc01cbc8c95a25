"""The engine's metrics page, in vLLM's or SGLang's names.

Only what is true of the simulation is on it. vLLM's page has the start time of the process, by which a
restart is told from a reconnect; SGLang gathers its page from several processes and has none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inferencecache.simengine.engine import Engine


class VllmCollector(Collector):
    """Reads the engine at each scrape, in vLLM's names."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._labels = {"engine": "0", "model_name": model}
        self._started_at = time.time()

    def collect(self) -> Iterable[Metric]:
        """All families of the page."""
        counters, cache, host = self._engine.counters, self._engine.cache, self._engine.host
        yield self._gauge("num_requests_running", "Requests being computed.", counters.running)
        yield self._gauge("num_requests_waiting", "Requests waiting for their turn.", counters.waiting)
        yield self._gauge(
            "kv_cache_usage_perc",
            "Share of blocks that running requests hold, 0 to 1.",
            cache.blocks_in_use / cache.capacity,
        )
        yield self._counter(
            "prefix_cache_queries", "Prompt tokens looked up in the cache.", counters.prompt_tokens
        )
        yield self._counter("prefix_cache_hits", "Prompt tokens found in the cache.", counters.device_tokens)
        if host.capacity:
            yield self._counter(
                "external_prefix_cache_queries",
                "Prompt tokens looked up on the host.",
                counters.prompt_tokens - counters.device_tokens,
            )
            yield self._counter(
                "external_prefix_cache_hits", "Prompt tokens found on the host.", counters.host_tokens
            )
        yield self._counter("prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", counters.generation_tokens)
        yield self._counter("request_success", "Requests that ended.", counters.finished)
        size = {
            "block_size": str(cache.block_size),
            "enable_prefix_caching": "True",
            "num_gpu_blocks": str(cache.capacity),
        }
        yield _gauge(
            "vllm:cache_config_info", "Size of the cache; the value is 1.", 1, {**self._labels, **size}
        )
        yield _gauge(
            "process_start_time_seconds",
            "Start time of the process, in seconds since the Unix epoch.",
            self._started_at,
            {},
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        return _gauge(f"vllm:{name}", text, value, self._labels)

    def _counter(self, name: str, text: str, value: float) -> Metric:
        return _counter(f"vllm:{name}", text, [(value, self._labels)])


class SglangCollector(Collector):
    """Reads the engine at each scrape, in SGLang's names."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._labels = {"engine_type": "unified", "model_name": model, "pp_rank": "0", "tp_rank": "0"}

    def collect(self) -> Iterable[Metric]:
        """All families of the page."""
        counters, cache, host = self._engine.counters, self._engine.cache, self._engine.host
        computed = counters.prompt_tokens - counters.cached_tokens
        yield self._gauge("num_running_reqs", "The number of running requests.", counters.running)
        yield self._gauge("num_queue_reqs", "The number of waiting requests.", counters.waiting)
        yield self._gauge("token_usage", "The token usage.", cache.blocks_in_use / cache.capacity)
        yield self._gauge(
            "cache_hit_rate",
            "The prefix cache hit rate.",
            counters.cached_tokens / counters.prompt_tokens if counters.prompt_tokens else 0.0,
        )
        by_mode = {"input": computed, "device_hit": counters.device_tokens, "host_hit": counters.host_tokens}
        yield _counter(
            "sglang:prefill_effective_tokens",
            "Prompt tokens by where they came from.",
            [(tokens, {**self._labels, "mode": mode}) for mode, tokens in by_mode.items()],
        )
        if host.capacity:
            yield self._gauge(
                "hicache_host_total_tokens", "Room on the host.", host.capacity * cache.block_size
            )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        return _gauge(f"sglang:{name}", text, value, self._labels)


class MetricsPage:
    """A collector's page in Prometheus' text format."""

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)

    def render(self) -> bytes:
        """The page as it is now."""
        return generate_latest(self._registry)


def _gauge(name: str, text: str, value: float, labels: Mapping[str, str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, text: str, samples: Sequence[tuple[float, Mapping[str, str]]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=list(samples[0][1]))
    for value, labels in samples:
        family.add_metric(list(labels.values()), value)
    return family
