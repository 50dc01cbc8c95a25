"""The HTTP face answers as OpenAI-style engines do, and its metrics page reads like vLLM's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from inferencecache.kvevent_subscriber.engine_metrics import (
    StatsDeriver,
    StatsSettings,
    profile_of,
    read_page,
    start_time_of,
)
from inferencecache.simengine.engine import Engine, EngineSettings
from inferencecache.simengine.events import Event
from inferencecache.simengine.metrics import MetricsPage, SglangCollector, VllmCollector
from inferencecache.simengine.server import ANSWER_DELAY_HEADER, STORED_AT_HEADER, EngineServer
from inferencecache.simengine.timing import Speed
from inferencecache.simengine.vllm_form import VllmForm

Client = TestClient[Any, Any]


def unheard(events: Sequence[Event]) -> float:
    return 1796000000.5


@pytest.fixture
def engine() -> Engine:
    return Engine(EngineSettings(num_blocks=64, host_blocks=64, speed=Speed(scale=1000)), unheard)


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    page = MetricsPage(VllmCollector(engine, "sim-model"))
    server = EngineServer(engine, "sim-model", VllmForm(16, hash_kind="bytes"), page, adapters=("sql",))
    async with TestClient(TestServer(server.application())) as client:
        yield client


async def complete(client: Client, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json=body)
    assert answer.status == 200
    decoded: dict[str, Any] = await answer.json()
    return decoded


async def test_a_repeated_prompt_reports_its_cached_tokens(client: Client) -> None:
    prompt = list(range(1000, 1040))
    first = await complete(client, prompt=prompt, max_tokens=3)
    second = await complete(client, prompt=prompt, max_tokens=3)
    assert first["usage"] == {
        "prompt_tokens": 40,
        "completion_tokens": 3,
        "total_tokens": 43,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
    assert first["choices"][0]["text"] == second["choices"][0]["text"]


async def test_token_ids_are_returned_on_request(client: Client) -> None:
    answer = await complete(client, prompt="ab", max_tokens=2, return_token_ids=True)
    [choice] = answer["choices"]
    assert choice["prompt_token_ids"] == [97, 98]
    assert bytes(choice["token_ids"]).decode() == choice["text"]
    assert "token_ids" not in (await complete(client, prompt="ab", max_tokens=2))["choices"][0]


async def test_the_times_of_the_stored_event_and_the_first_token_are_stated(client: Client) -> None:
    body = {"prompt": list(range(40)), "max_tokens": 1}
    first = await client.post("/v1/completions", json=body)
    second = await client.post("/v1/completions", json=body)
    assert first.headers[STORED_AT_HEADER] == "1796000000.500000"
    assert STORED_AT_HEADER not in second.headers
    assert 0 < float(second.headers[ANSWER_DELAY_HEADER]) < float(first.headers[ANSWER_DELAY_HEADER])


async def test_a_streamed_answer_ends_with_its_usage(client: Client) -> None:
    body = {"prompt": "hello", "max_tokens": 3, "stream": True}
    answer = await client.post("/v1/completions", json=body)
    lines = [line.removeprefix("data: ") for line in (await answer.text()).split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    *pieces, last = [json.loads(line) for line in lines]
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [None, None, "length"]
    assert last["usage"]["completion_tokens"] == 3
    whole = await complete(client, prompt="hello", max_tokens=3)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == whole["choices"][0]["text"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": ""}, 400),
        ({"prompt": [-1]}, 400),
        ({"prompt": "x", "max_tokens": 0}, 400),
        ({"prompt": "x", "max_tokens": 10_000}, 400),
        ({"prompt": "x", "model": "another"}, 404),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused_with_a_reason(
    client: Client, body: dict[str, Any], status: int
) -> None:
    answer = await client.post("/v1/completions", json=body)
    assert answer.status == status
    assert (await answer.json())["error"]["message"]


async def test_resetting_the_cache_forgets_it(client: Client) -> None:
    await complete(client, prompt=list(range(40)), max_tokens=1)
    assert len((await (await client.get("/debug/cache")).json())["blocks"]) == 2
    assert (await client.post("/reset_prefix_cache")).status == 200
    assert (await (await client.get("/debug/cache")).json())["blocks"] == []


async def test_an_adapter_is_asked_for_in_the_place_of_the_model(client: Client) -> None:
    prompt = list(range(40))
    for model, cached in (("sim-model", 0), ("sql", 0), ("sql", 32)):
        answer = await complete(client, prompt=prompt, max_tokens=1, model=model)
        assert answer["model"] == model
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}
    models = await (await client.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["sim-model", "sql"]


async def test_the_cache_is_shown_in_all_its_places_with_hashes_as_sent(client: Client) -> None:
    await complete(client, prompt=list(range(40)), max_tokens=1)
    shown = await (await client.get("/debug/cache")).json()
    assert {block["hash"] for block in shown["blocks"]} == set(shown["host"])
    assert all(len(bytes.fromhex(hash_)) == 32 for hash_ in shown["host"])
    await client.post("/flush_cache")
    assert (await (await client.get("/debug/cache")).json())["host"] == []


@pytest.mark.rule("SUB-131", "SUB-143")
@pytest.mark.parametrize(
    ("collector", "scheme"), [(VllmCollector, "vllm"), (SglangCollector, "sglang")], ids=["vllm", "sglang"]
)
async def test_the_sidecar_reads_the_metrics_page(
    engine: Engine, client: Client, collector: Callable[[Engine, str], Collector], scheme: str
) -> None:
    profile = profile_of(scheme)
    page = MetricsPage(collector(engine, "sim-model"))
    deriver = StatsDeriver(profile, StatsSettings())
    deriver.derive(read_page(page.render().decode(), "text/plain", profile))
    for prompt in (range(40), range(40), range(100, 1100), range(40)):
        await complete(client, prompt=list(prompt), max_tokens=1)
    stats = deriver.derive(read_page(page.render().decode(), "text/plain", profile, "sim-model"))
    assert (stats.requests_running, stats.requests_waiting, stats.kv_usage) == (0, 0, 0.0)
    assert (stats.t2_hit_tokens, stats.t2_query_tokens) == (16, 1120 - 48)
    device, both = 48 / 1120, 64 / 1120
    assert stats.hit_rate == pytest.approx(device if scheme == "vllm" else both)


def test_only_vllms_page_names_its_process(engine: Engine) -> None:
    assert start_time_of(MetricsPage(VllmCollector(engine, "m")).render().decode())
    assert not start_time_of(MetricsPage(SglangCollector(engine, "m")).render().decode())


@pytest.mark.rule("SUB-131", "SUB-132")
async def test_the_metrics_page_has_the_engine_s_names_and_kinds(client: Client) -> None:
    for _ in range(2):
        await complete(client, prompt=list(range(40)), max_tokens=1)
    page = await (await client.get("/metrics")).text()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    kinds = {name: family.type for name, family in families.items()}
    assert kinds["vllm:num_requests_running"] == "gauge"
    assert kinds["vllm:num_requests_waiting"] == "gauge"
    assert kinds["vllm:kv_cache_usage_perc"] == "gauge"
    assert kinds["vllm:prefix_cache_hits"] == "counter"
    assert kinds["vllm:prefix_cache_queries"] == "counter"
    assert kinds["process_start_time_seconds"] == "gauge"
    [hits] = families["vllm:prefix_cache_hits"].samples
    [queries] = families["vllm:prefix_cache_queries"].samples
    assert (hits.name, hits.value, queries.value) == ("vllm:prefix_cache_hits_total", 32, 80)
    assert hits.labels == {"engine": "0", "model_name": "sim-model"}
