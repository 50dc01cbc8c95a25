"""From an engine's metrics page to statistics: what is read of it, and what is made of that.

A page is cut down to the families that matter before it is parsed, since an engine's histograms are
most of it. A page that lacks the load is refused loudly rather than read as an idle engine
[SUB-136, SUB-137], and a refused page moves nothing [SUB-142].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from inferencecache.schemas.records import Stats

CacheTier = Literal["auto", "kv", "gpu", "cpu"]

OPENMETRICS: Final = "application/openmetrics-text"
RANK_LABELS: Final = ("engine", "dp_rank")
START_TIME: Final = "process_start_time_seconds"
GIBIBYTE: Final = 2**30
_INT64_MAX: Final = 2**63 - 1

_COUNTER_ENDINGS: Final = ("_total", "_created")


class Profile(msgspec.Struct, frozen=True):
    """What an engine calls its gauges and counters; empty when it has none of that meaning [SUB-131]."""

    running: str
    waiting: str
    usage: Mapping[str, str]
    hits: str = ""
    queries: str = ""
    hit_rate: str = ""
    t2_hits: str = ""
    t2_queries: str = ""
    prefill_tokens: str = ""
    host_tokens: str = ""
    capacity_gib: str = ""

    @property
    def gauges(self) -> frozenset[str]:
        """Names that count only when declared as gauges."""
        names = (self.running, self.waiting, self.hit_rate, self.host_tokens, self.capacity_gib)
        return frozenset(filter(None, (*names, *self.usage.values())))

    @property
    def counters(self) -> frozenset[str]:
        """Names, without `_total`, that count only when declared as counters."""
        names = (self.hits, self.queries, self.t2_hits, self.t2_queries, self.prefill_tokens)
        return frozenset(filter(None, names))


VLLM: Final = Profile(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    usage={
        "kv": "vllm:kv_cache_usage_perc",
        "gpu": "vllm:gpu_cache_usage_perc",
        "cpu": "vllm:cpu_cache_usage_perc",
    },
    hits="vllm:prefix_cache_hits",
    queries="vllm:prefix_cache_queries",
    t2_hits="vllm:external_prefix_cache_hits",
    t2_queries="vllm:external_prefix_cache_queries",
)
SGLANG: Final = Profile(
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    usage={"kv": "sglang:token_usage"},
    hit_rate="sglang:cache_hit_rate",
    prefill_tokens="sglang:prefill_effective_tokens",
    host_tokens="sglang:hicache_host_total_tokens",
    capacity_gib="sglang:kv_cache_memory_usage_gb",
)


def profile_of(scheme: str) -> Profile:
    """The profile that a hash scheme selects; everything but `sglang` is read like vLLM [SUB-131]."""
    return SGLANG if scheme == "sglang" else VLLM


class PageError(Exception):
    """The page is no statement about this engine's load; `reason` says in what way."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Sample(NamedTuple):
    """One value with its labels."""

    labels: Mapping[str, str]
    value: float


class Page(NamedTuple):
    """What was read: samples by name, counters without `_total`.

    `started` identifies the engine process, and is empty when the page does not say.
    """

    samples: Mapping[str, list[Sample]]
    started: str

    def values(self, name: str) -> list[float]:
        """All values of a name."""
        return [sample.value for sample in self.samples.get(name, ())]


def read_page(
    text: str, content_type: str, profile: Profile, model_name: str = "", rank: int | None = None
) -> Page:
    """Read a page. Raises `PageError` when it is broken, another engine's, or without the load.

    With `model_name` only samples of that model count [SUB-134]; with `rank` samples that name another
    data-parallel rank do not.
    """
    parse = parse_openmetrics if content_type.strip().lower().startswith(OPENMETRICS) else parse_plain
    wanted = profile.gauges | profile.counters
    try:
        families = list(parse(_relevant(text, wanted | {START_TIME})))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise PageError(f"the page cannot be parsed: {type(error).__name__}") from error
    samples: dict[str, list[Sample]] = {}
    seen = set()
    for family in families:
        for name, sample in _samples_of(family, profile):
            seen.add(name)
            if math.isfinite(sample.value) and _is_meant(sample, model_name, rank):
                samples.setdefault(name, []).append(sample)
    if not seen:
        raise PageError("no recognised metric family")
    page = Page(samples, _start_time(families))
    missing = [
        f"{what} {'not finite or filtered out' if name in seen else 'absent'}"
        for what, name in (("running", profile.running), ("waiting", profile.waiting))
        if not page.values(name)
    ]
    if missing:
        raise PageError(f"load gauges incomplete ({', '.join(missing)})")
    return page


def start_time_of(text: str) -> str:
    """What identifies the engine process on its page, in either format; empty when it does not say."""
    try:
        return _start_time(list(parse_plain(_relevant(text, {START_TIME}))))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return ""


def _relevant(text: str, names: frozenset[str] | set[str]) -> str:
    """The lines about these names. Of a counter in both spellings only that with `_total` stays [SUB-132]."""
    lines: list[tuple[str, str]] = []
    spelled_out: set[str] = set()
    for line in text.split("\n"):
        if line.startswith("#"):
            words = line.split(maxsplit=3)
            if words[1:2] == ["EOF"]:
                lines.append(("", line))
                continue
            if len(words) < 3:
                continue
            name = words[2]
            if words[1] == "TYPE" and name.endswith("_total"):
                spelled_out.add(name.removesuffix("_total"))
        else:
            name = line.partition("{")[0].partition(" ")[0]
        if name in names or any(name.removesuffix(ending) in names for ending in _COUNTER_ENDINGS):
            lines.append((name, line))
    return "".join(f"{line}\n" for name, line in lines if name not in spelled_out)


def _samples_of(family: Metric, profile: Profile) -> Iterator[tuple[str, Sample]]:
    for sample in family.samples:
        if family.type == "gauge" and sample.name in profile.gauges:
            yield sample.name, Sample(sample.labels, sample.value)
        elif family.type == "counter" and sample.name.endswith("_total"):
            name = sample.name.removesuffix("_total")
            if name in profile.counters:
                yield name, Sample(sample.labels, sample.value)


def _is_meant(sample: Sample, model_name: str, rank: int | None) -> bool:
    if model_name and sample.labels.get("model_name") != model_name:
        return False
    return rank is None or all(sample.labels.get(label, str(rank)) == str(rank) for label in RANK_LABELS)


def _start_time(families: Iterable[Metric]) -> str:
    values = sorted(
        sample.value for family in families for sample in family.samples if sample.name == START_TIME
    )
    return ",".join(map(repr, values))


class StatsSettings(msgspec.Struct, frozen=True):
    """How a page becomes statistics; names and defaults as the flags [SUB-161..164]."""

    cache_size_bytes: int = 0
    max_concurrency: int = 256
    cache_tier: CacheTier = "auto"


class StatsDeriver:
    """Makes statistics of successive pages; only the hit rate needs the one before [SUB-142]."""

    def __init__(self, profile: Profile, settings: StatsSettings) -> None:
        self._profile = profile
        self._settings = settings
        self._baseline: tuple[float, float] | None = None

    def derive(self, page: Page) -> Stats:
        """Statistics of a page."""
        running = _load(page, self._profile.running)
        waiting = _load(page, self._profile.waiting)
        usage = self._usage(page)
        t2_hits, t2_queries = self._t2_tokens(page)
        return Stats(
            cache_memory_bytes=_whole(usage * self._capacity_bytes(page)),
            hit_rate=self._hit_rate(page),
            pressure=self._pressure(running + waiting),
            t2_hit_tokens=_whole(t2_hits),
            t2_query_tokens=_whole(t2_queries),
            requests_running=_whole(running),
            requests_waiting=_whole(waiting),
            kv_usage=usage,
        )

    def _pressure(self, load: float) -> float:
        ceiling = self._settings.max_concurrency
        return _clamped(load / ceiling) if ceiling > 0 and load > 0 else 0.0

    def _usage(self, page: Page) -> float:
        usage = {
            tier: max(values) for tier, name in self._profile.usage.items() if (values := page.values(name))
        }
        if self._settings.cache_tier != "auto":
            return usage.get(self._settings.cache_tier, 0.0)
        return usage["kv"] if "kv" in usage else max(usage.values(), default=0.0)

    def _capacity_bytes(self, page: Page) -> float:
        if self._settings.cache_size_bytes > 0:
            return float(self._settings.cache_size_bytes)
        return sum(page.values(self._profile.capacity_gib)) * GIBIBYTE

    def _hit_rate(self, page: Page) -> float:
        if self._profile.hit_rate:
            return _clamped(max(page.values(self._profile.hit_rate), default=0.0))
        hits, queries = page.values(self._profile.hits), page.values(self._profile.queries)
        if not hits or not queries:
            return 0.0
        now = sum(hits), sum(queries)
        before, self._baseline = self._baseline, now
        if before is None or now[0] < before[0] or now[1] <= before[1]:
            return 0.0
        return _clamped((now[0] - before[0]) / (now[1] - before[1]))

    def _t2_tokens(self, page: Page) -> tuple[float, float]:
        profile = self._profile
        if not profile.prefill_tokens:
            return sum(page.values(profile.t2_hits)), sum(page.values(profile.t2_queries))
        by_mode = {"host_hit": 0.0, "storage_hit": 0.0, "input": 0.0}
        for sample in page.samples.get(profile.prefill_tokens, ()):
            mode = sample.labels.get("mode", "")
            if mode in by_mode:
                by_mode[mode] += sample.value
        hits = by_mode["host_hit"] + by_mode["storage_hit"]
        # The modes are exported with or without a host tier; without one there is nothing to rate [SUB-143].
        has_host_tier = hits > 0 or sum(page.values(profile.host_tokens)) > 0
        return (hits, hits + by_mode["input"]) if has_host_tier else (0.0, 0.0)


def _load(page: Page, name: str) -> float:
    """Summed over ranks; a sample with a priority repeats part of the total [SUB-138]."""
    return sum(sample.value for sample in page.samples.get(name, ()) if not sample.labels.get("priority"))


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))


def _whole(value: float) -> int:
    """Truncated, and within what a record carries."""
    if abs(value) < _INT64_MAX:
        return int(value)
    return _INT64_MAX if value > 0 else -_INT64_MAX
