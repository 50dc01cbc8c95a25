"""Real Envoy and a picker, in each way of sending bodies, over engines that tell what reached them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from inferencecache.core.gateway import Endpoint
from tests.support.endpoints import endpoint
from tests.support.envoy import Document, envoy, ext_proc_of
from tests.support.gateway import MODEL, served_picker

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(120)]

Change = Callable[[Document], None]
PROMPT = list(range(4096))
BODY = {"model": MODEL, "prompt": PROMPT, "max_tokens": 1}
LONG = {"model": MODEL, "prompt": [100_000 + token for token in range(400_000)]}
"""Over two million bytes: many pieces, wherever a body is sent in pieces."""


class Engine:
    """Answers who it is and how long a body was; `status` may be changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = 200
        self.bodies: list[bytes] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/health":
            return web.Response()
        body = await request.read()
        self.bodies.append(body)
        return web.json_response({"engine": self.name, "bytes": len(body)}, status=self.status)


@asynccontextmanager
async def engines(*names: str) -> AsyncIterator[dict[Endpoint, Engine]]:
    """Engines on ports of their own, as endpoints whose replicas have their names."""
    async with AsyncExitStack() as stack:
        running: dict[Endpoint, Engine] = {}
        for name in names:
            engine = Engine(name)
            application = web.Application(client_max_size=1 << 26)
            application.add_routes([web.route("*", "/{path:.*}", engine.answer)])
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            running[endpoint(f"127.0.0.1:{runner.addresses[0][1]}", name)] = engine
        yield running


def streaming(document: Document) -> None:
    mode = ext_proc_of(document)["processing_mode"]
    mode |= {
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_body_mode": "FULL_DUPLEX_STREAMED",
        "response_trailer_mode": "SEND",
    }


def delayed(document: Document) -> None:
    filter_ = ext_proc_of(document)
    filter_["processing_mode"]["request_body_mode"] = "STREAMED"
    filter_["send_body_without_waiting_for_header_response"] = True


def by_headers(document: Document) -> None:
    ext_proc_of(document)["processing_mode"]["request_body_mode"] = "STREAMED"


def whole(document: Document) -> None:
    """As in the demo."""
    assert ext_proc_of(document)["processing_mode"]["request_body_mode"] == "BUFFERED"


def patient(change: Change) -> Change:
    """On a busy machine a router may need longer than the demo's Envoy waits for it."""

    def changed(document: Document) -> None:
        ext_proc_of(document)["message_timeout"] = "20s"
        change(document)

    return changed


async def post(http: ClientSession, url: str, body: Any) -> tuple[dict[str, Any], str]:
    """What an engine answered, and the reason that the client is shown."""
    content = BytesIO(json.dumps(body).encode())
    async with http.post(f"{url}/v1/completions", data=content) as response:
        assert response.status == 200, await response.text()
        return json.loads(await response.text()), response.headers["x-inferencecache-reason"]


@pytest.mark.parametrize("change", [whole, streaming, delayed, by_headers])
async def test_a_body_reaches_the_engine_that_holds_it_as_it_was_sent(change: Change, tmp_path: Path) -> None:
    async with (
        engines("a", "b", "c") as running,
        served_picker(list(running), shows_reasons=True) as picker,
        envoy(tmp_path, [each.address for each in running], [picker.address], patient(change)) as url,
        ClientSession() as http,
    ):
        await picker.report("b", PROMPT)
        for _ in range(3):
            answer, reason = await post(http, url, BODY)
            if change is by_headers:
                assert reason == "BODY_UNSEEN"
            else:
                assert (answer["engine"], reason) == ("b", "PREFIX_MATCH")
        answer, _ = await post(http, url, LONG)
        assert answer["bytes"] == len(json.dumps(LONG))
        sent = {json.dumps(BODY).encode(), json.dumps(LONG).encode()}
        assert {body for engine in running.values() for body in engine.bodies} == sent


async def test_an_engine_that_refuses_costs_a_retry_and_is_passed_over_then(tmp_path: Path) -> None:
    async with (
        engines("a", "b") as running,
        served_picker(list(running), shows_reasons=True) as picker,
        envoy(tmp_path, [each.address for each in running], [picker.address], patient(whole)) as url,
        ClientSession() as http,
    ):
        await picker.report("b", PROMPT)
        (refusing,) = (engine for engine in running.values() if engine.name == "b")
        refusing.status = 503
        for _ in range(10):
            answer, _ = await post(http, url, BODY)
            assert answer["engine"] == "a"
        # On a slow machine the first times of passing over are over before the last request.
        assert 1 <= len(refusing.bodies) < 5


async def test_a_request_without_a_body_and_one_too_long_to_read_reach_an_engine(tmp_path: Path) -> None:
    async with (
        engines("a", "b") as running,
        served_picker(list(running), shows_reasons=True, body_limit=100_000) as picker,
        envoy(tmp_path, [each.address for each in running], [picker.address], patient(whole)) as url,
        ClientSession() as http,
    ):
        async with http.get(f"{url}/v1/models") as response:
            assert response.status == 200
            assert response.headers["x-inferencecache-reason"] == "NOT_A_PROMPT"
        answer, reason = await post(http, url, LONG)
        assert (answer["bytes"], reason) == (len(json.dumps(LONG)), "BODY_TOO_LARGE")


async def test_without_any_endpoint_envoy_goes_on_by_itself_or_refuses(tmp_path: Path) -> None:
    async with engines("a") as running, ClientSession() as http:
        for refuses, status in ((False, 200), (True, 503)):
            async with (
                served_picker([], refuses=refuses) as picker,
                envoy(tmp_path, [each.address for each in running], [picker.address], patient(whole)) as url,
                http.post(f"{url}/v1/completions", json=BODY) as response,
            ):
                assert response.status == status
