"""What arguments and metrics pages of engines say."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.cli.doctor.arguments import ports_of, spec_of
from inferencecache.cli.doctor.facts import EnginePage, EngineSpec, SidecarPage
from inferencecache.cli.doctor.pages import NoPageError, engine_page, sidecar_page

RELEASE = "vllm/vllm-openai:v0.16.0"
EVENTS = '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}'


def pod(
    *args: str, image: str = "vllm/vllm-openai:v0.16.0", name: str = "vllm", **env: str
) -> dict[str, Any]:
    variables = [{"name": key, "value": value} for key, value in env.items()]
    engine = {"name": name, "image": image, "args": list(args), "env": variables}
    sidecar = {
        "name": "kvevent-subscriber",
        "args": [
            "--engine-endpoint=tcp://127.0.0.1:5557",
            "--engine-metrics-url=http://127.0.0.1:8000/metrics",
        ],
    }
    return {"spec": {"containers": [engine, sidecar]}}


def test_everything_that_arguments_say_is_read() -> None:
    arguments = [
        "--block-size=32",
        "--no-enable-prefix-caching",
        "--enable-lora",
        "--prefix-caching-hash-algo",
        "sha256",
    ]
    spec = spec_of(pod(*arguments, "--kv-events-config", EVENTS, PYTHONHASHSEED="0"), "vllm", "redis:6379")
    assert spec == EngineSpec("vllm", (0, 16, 0), 32, "sha256", "0", False, True, True, "redis:6379")


def test_what_is_not_said_is_not_known_and_events_are_off_until_they_are_switched_on() -> None:
    assert spec_of(pod("--model=m"), "vllm") == EngineSpec("vllm", (0, 16, 0), events=False)
    assert spec_of(pod("--config", "engine.yaml"), "vllm").events is None
    assert spec_of({"spec": {"containers": []}}, "vllm") == EngineSpec("vllm")
    assert spec_of({}, "vllm") == EngineSpec("vllm")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (EVENTS, True),
        ('{"publisher":"zmq"}', False),
        ('{"enable_kv_cache_events":false}', False),
        ("{", None),
    ],
)
def test_events_are_on_when_their_configuration_says_so(written: str, expected: bool | None) -> None:
    assert spec_of(pod(f"--kv-events-config={written}"), "vllm").events is expected


def test_sglang_has_names_of_its_own() -> None:
    engine = pod(
        *("--page-size", "16", "--disable-radix-cache", "--kv-events-config", '{"publisher":"zmq"}'),
        image="registry:5000/lmsysorg/sglang:v0.5.22-cu126@sha256:ab",
        name="engine",
    )
    assert spec_of(engine, "sglang") == EngineSpec(
        "sglang", (0, 5, 22), 16, prefix_caching=False, events=True
    )


def test_a_shells_command_line_is_taken_apart_and_the_last_flag_counts() -> None:
    spec = spec_of(pod("exec vllm serve m --block-size 16 --block-size 64"), "vllm")
    assert spec.block_size == 64


@pytest.mark.parametrize("image", ["vllm:latest", "vllm", "vllm@sha256:00", "host:5000/vllm", "vllm:1.2.3.4"])
def test_a_tag_that_names_no_release_is_no_version(image: str) -> None:
    assert spec_of(pod(image=image), "vllm").version == ()


def test_pages_are_where_the_sidecar_was_told_that_they_are() -> None:
    assert ports_of(pod()) == (8000, 8082)
    assert ports_of({"spec": {"containers": [{"name": "vllm"}]}}) is None


VLLM_PAGE = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="32",enable_prefix_caching="False",prefix_caching_hash_algo="sha256"} 1.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{finished_reason="stop"} 3.0
vllm:request_success_total{finished_reason="length"} 4.0
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters=""} 1.0
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total 5.0
"""
SIDECAR_PAGE = """\
# TYPE inferencecache_subscriber_messages_total counter
inferencecache_subscriber_messages_total 9.0
# TYPE inferencecache_subscriber_records_total counter
inferencecache_subscriber_records_total{kind="add"} 7.0
inferencecache_subscriber_records_total{kind="evict"} 2.0
# TYPE inferencecache_subscriber_ignored_group_total counter
inferencecache_subscriber_ignored_group_total 5.0
# TYPE inferencecache_subscriber_unmapped_adapter_total counter
inferencecache_subscriber_unmapped_adapter_total 1.0
# TYPE inferencecache_subscriber_block_size gauge
inferencecache_subscriber_block_size 16.0
# TYPE inferencecache_subscriber_tracked_blocks gauge
inferencecache_subscriber_tracked_blocks 30.0
"""


def test_pages_say_how_the_cache_is_set_up_and_what_was_seen() -> None:
    assert engine_page(VLLM_PAGE) == EnginePage(32, "sha256", False, 7.0, True)
    assert sidecar_page(SIDECAR_PAGE) == SidecarPage(16, 9, 7, 5, 1, 30)


@pytest.mark.parametrize("text", ["", "<html>", SIDECAR_PAGE, 'vllm:x{a="b} 1\n'])
def test_what_is_no_page_of_an_engine_is_refused(text: str) -> None:
    with pytest.raises(NoPageError):
        engine_page(text)
