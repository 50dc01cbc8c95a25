"""The engine's metrics page, in vLLM's names.

Only what is true of the simulation is on it: load, cache use, prefix hits in tokens, totals, and the
start time of the process, by which a restart is told from a reconnect.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inferencecache.simengine.engine import Engine


class EngineCollector(Collector):
    """Reads the engine at each scrape."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._labels = {"engine": "0", "model_name": model}
        self._started_at = time.time()

    def collect(self) -> Iterable[Metric]:
        """All families of the page."""
        counters, cache = self._engine.counters, self._engine.cache
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
        yield self._counter("prefix_cache_hits", "Prompt tokens found in the cache.", counters.cached_tokens)
        yield self._counter("prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", counters.generation_tokens)
        yield self._counter("request_success", "Requests that ended.", counters.finished)
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Size of the cache; the value is 1.",
            labels=[*self._labels, "block_size", "num_gpu_blocks"],
        )
        info.add_metric([*self._labels.values(), str(cache.block_size), str(cache.capacity)], 1)
        yield info
        started = GaugeMetricFamily(
            "process_start_time_seconds", "Start time of the process, in seconds since the Unix epoch."
        )
        started.add_metric([], self._started_at)
        yield started

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family


class MetricsPage:
    """The page in Prometheus' text format."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(EngineCollector(engine, model))

    def render(self) -> bytes:
        """The page as it is now."""
        return generate_latest(self._registry)
