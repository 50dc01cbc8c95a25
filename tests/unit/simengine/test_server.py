"""The HTTP face answers as OpenAI-style engines do, and its metrics page reads like vLLM's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from inferencecache.simengine.engine import Engine, EngineSettings
from inferencecache.simengine.events import Event
from inferencecache.simengine.server import ANSWER_DELAY_HEADER, STORED_AT_HEADER, EngineServer
from inferencecache.simengine.timing import Speed

Client = TestClient[Any, Any]


def unheard(events: Sequence[Event]) -> float:
    return 1796000000.5


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    engine = Engine(EngineSettings(num_blocks=64, speed=Speed(scale=1000)), unheard)
    async with TestClient(TestServer(EngineServer(engine, "sim-model").application())) as client:
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
