"""What metrics pages of engines and of sidecars say; pure. A page that cannot be read raises ValueError."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from inferencecache.cli.doctor.facts import EnginePage, SidecarPage

SIDECAR: Final = "inferencecache_subscriber_"
_ENGINES: Final = ("vllm:", "sglang:")
_SERVED: Final = (
    "vllm:request_success_total",
    "vllm:prompt_tokens_total",
    "sglang:num_requests_total",
    "sglang:prompt_tokens_total",
    "sglang:prefill_effective_tokens_total",
)


class NoPageError(ValueError):
    """The text is no metrics page of that program."""


def engine_page(text: str) -> EnginePage:
    """VLLM's or SGLang's."""
    samples = _samples(text, _ENGINES)
    cache: dict[str, str] = next((dict(each.labels) for each in samples["vllm:cache_config_info"]), {})
    caching = {"True": True, "False": False}.get(cache.get("enable_prefix_caching", ""))
    size = cache.get("block_size", "")
    adapters = samples["vllm:lora_requests_info"]
    return EnginePage(
        block_size=int(size) if size.isdecimal() else None,
        hash_algorithm=cache.get("prefix_caching_hash_algo"),
        prefix_caching=caching,
        served=sum(each.value for name in _SERVED for each in samples[name]),
        adapters=any(
            each.labels.get("running_lora_adapters") or each.labels.get("waiting_lora_adapters")
            for each in adapters
        ),
    )


def sidecar_page(text: str) -> SidecarPage:
    """The sidecar's of one engine, all of whose ranks are summed up."""
    samples = _samples(text, (SIDECAR,))

    def total(name: str, **labels: str) -> int:
        counted = samples[SIDECAR + name]
        return int(sum(each.value for each in counted if labels.items() <= each.labels.items()))

    return SidecarPage(
        block_size=total("block_size"),
        messages=total("messages_total"),
        stored=total("records_total", kind="add"),
        ignored_groups=total("ignored_group_total"),
        nameless_adapters=total("unmapped_adapter_total"),
        tracked_blocks=total("tracked_blocks"),
    )


def _samples(text: str, prefixes: tuple[str, ...]) -> defaultdict[str, list[Sample]]:
    """By name; an engine's histograms are most of its page and are passed over before they are parsed."""
    lines = [
        line
        for line in text.splitlines()
        if line.removeprefix("# TYPE ").removeprefix("# HELP ").startswith(prefixes) and "_bucket" not in line
    ]
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
            for sample in family.samples:
                samples[sample.name].append(sample)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise NoPageError(f"the page cannot be read: {type(error).__name__}") from error
    if not samples:
        raise NoPageError(f"the page has nothing that begins with {' or '.join(prefixes)}")
    return samples
