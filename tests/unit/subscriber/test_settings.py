"""The sidecar's flags: defaults of a managed engine, and refusals that name what to write."""

from __future__ import annotations

import pytest

from inferencecache.kvevent_subscriber.endpoints import EndpointError, binds, check_endpoint, of_rank
from inferencecache.kvevent_subscriber.engine_metrics import profile_of
from inferencecache.kvevent_subscriber.settings import SubscriberSettings, read_settings

IDENTITY = ("--replica-id=vllm-0", "--model-id=m")


def read(*arguments: str, **environment: str) -> SubscriberSettings:
    return read_settings([*IDENTITY, *arguments], environment)


@pytest.mark.rule(
    "SUB-150", "SUB-151", "SUB-154", "SUB-155", "SUB-157", "SUB-158", "SUB-159", "SUB-160", "SUB-161",
    "SUB-162", "SUB-163", "SUB-164", "SUB-165", "SUB-167", "SUB-168", "SUB-171", "SUB-172", "SUB-173",
    "SUB-174", "SUB-175", "SUB-176", "SUB-178",
)  # fmt: skip
def test_the_defaults_are_those_of_a_managed_engine() -> None:
    settings = read()
    assert settings.endpoints == ("tcp://127.0.0.1:5557",)
    assert settings.replay_endpoints == ("tcp://127.0.0.1:5558",)
    assert (settings.topic, settings.tenant, settings.scheme) == ("kv-events", "", "vllm")
    assert settings.metrics_url == "http://127.0.0.1:8000/metrics"
    assert settings.nats.url == "nats://127.0.0.1:4222"
    assert (settings.stats_interval_s, settings.replay_timeout_s) == (10.0, 2.0)
    assert (settings.producer.window_s, settings.producer.outbox_max) == (0.02, 1024)
    assert settings.producer.alive_interval_s == 20.0
    assert (settings.stats.cache_size_bytes, settings.stats.max_concurrency) == (0, 256)
    assert (settings.stats.cache_tier, settings.engine_model_name) == ("auto", "")
    mapping = settings.mapping
    assert (mapping.block_size, mapping.unknown_parent, settings.on_gap) == (0, "hold", "mark")
    assert (mapping.ignore_block_removed, mapping.lora_names_from_engine) == (False, True)
    assert (mapping.lora_adapter_names, mapping.max_tracked_blocks) == ({}, 100_000)
    assert (mapping.cpu_medium, settings.rank_replicas) == ("local", False)
    assert settings.health_address == ("0.0.0.0", 8082)
    assert settings.log_level == "info"


@pytest.mark.rule("SUB-123", "SUB-131")
def test_any_scheme_is_a_tag_and_all_but_one_read_the_page_like_vllm() -> None:
    assert read("--hash-scheme=my own").scheme == "my own"
    assert profile_of("my own") is profile_of("vllm")
    assert profile_of("sglang") is not profile_of("vllm")


@pytest.mark.rule("SUB-156", "SUB-160")
def test_durations_that_are_not_positive_mean_the_default() -> None:
    settings = read("--window=0", "--stats-interval=-1s", "--alive-interval=0")
    assert settings.producer.window_s == 0.02
    assert settings.stats_interval_s == 10.0
    assert settings.producer.alive_interval_s == 20.0
    assert read("--window=150ms").producer.window_s == 0.15


@pytest.mark.rule("SUB-W43", "SUB-186", "SUB-152", "SUB-153", "SUB-155", "SUB-163", "SUB-169", "SUB-170")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--cache-tier=KV",),
        ("--hash-scheme=",),
        ("--unknown-parent=guess",),
        ("--on-gap=panic",),
        ("--data-parallel-size=0",),
        ("--max-tracked-blocks=0",),
        ("--block-size=-1",),
        ("--lora-adapter-names=1",),
        ("--window=20",),
        ("--engine-endpoint=127.0.0.1:5557",),
        ("--engine-endpoint=tcp://127.0.0.1:99999",),
        ("--engine-endpoint=ipc:///tmp/x", "--data-parallel-size=2"),
        ("--engine-endpoint=tcp://127.0.0.1:65535", "--data-parallel-size=2"),
        ("--replay-endpoint=somewhere",),
        ("--engine-metrics-url=file:///etc/passwd",),
        (f"--tenant-id={'x' * 256}",),
        ("--no-such-flag",),
        ("positional",),
    ],
    ids=" ".join,
)
def test_a_wrong_setting_ends_the_process_with_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*arguments)
    assert ended.value.code == 2
    assert "usage: kvevent-subscriber" in capsys.readouterr().err


@pytest.mark.rule("SUB-185")
def test_an_address_that_is_no_nats_server_ends_the_process_with_1() -> None:
    for arguments, environment in (
        (("--nats-url=::bad",), {}),
        ((), {"INFERENCECACHE_NATS_URL": "http://x"}),
    ):
        with pytest.raises(SystemExit) as ended:
            read(*arguments, **environment)
        assert ended.value.code == 1


@pytest.mark.rule("SUB-120", "SUB-W43")
@pytest.mark.parametrize("missing", IDENTITY)
def test_a_missing_identity_is_named(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings([flag for flag in IDENTITY if flag != missing], {})
    assert ended.value.code == 2
    assert missing.partition("=")[0] in capsys.readouterr().err


@pytest.mark.rule("SUB-W43", "SUB-151")
def test_an_empty_topic_subscribes_to_everything() -> None:
    assert read("--topic=").topic == ""


@pytest.mark.rule("SUB-177")
def test_the_environment_holds_the_pod_and_its_credentials() -> None:
    settings = read(POD_UID="uid-1", NATS_CREDS="text", INFERENCECACHE_TOPIC="events")
    assert settings.pod_uid == "uid-1"
    assert settings.nats.creds_text == "text"
    assert settings.topic == "events"


@pytest.mark.rule("SUB-020", "SUB-059", "SUB-166")
def test_each_rank_has_its_own_sockets() -> None:
    ranks = read("--data-parallel-size=3", "--engine-endpoint=tcp://10.0.0.1:6000")
    assert ranks.endpoints == tuple(f"tcp://10.0.0.1:{port}" for port in (6000, 6001, 6002))
    assert ranks.replay_endpoints == ("", "", "")
    explicit = read("--data-parallel-size=2", "--replay-endpoint=tcp://10.0.0.1:7000")
    assert explicit.replay_endpoints == ("tcp://10.0.0.1:7000", "tcp://10.0.0.1:7001")
    assert read("--replay-endpoint=").replay_endpoints == ("",)
    assert read("--engine-endpoint=tcp://*:5557").replay_endpoints == ("",)
    assert read("--engine-endpoint=ipc:///tmp/events").replay_endpoints == ("",)


@pytest.mark.rule("SUB-017", "SUB-020")
def test_endpoints() -> None:
    assert of_rank("inproc://x", 2) == "inproc://x_dp2"
    assert of_rank("tcp://[::1]:5557", 1) == "tcp://[::1]:5558"
    assert binds("tcp://*:5557")
    assert not binds("tcp://127.0.0.1:5557")
    for text in ("", "tcp://", "tcp://host", "tcp://host:0", "http://host:1", "ipc://"):
        with pytest.raises(EndpointError):
            check_endpoint(text)
