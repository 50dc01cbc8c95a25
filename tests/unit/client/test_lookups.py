"""The client: what a router says, and what it makes of a router that says nothing."""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from inferencecache.client import (
    INVALID_REQUEST,
    TIMEOUT,
    UNREACHABLE,
    AsyncClient,
    Client,
    Hint,
    Prompt,
    RankedReplica,
)
from inferencecache.core.fingerprint import prefix_digests
from inferencecache.v1alpha1.inferencecache_pb2 import CacheStateUpdate, PrefixEntry
from tests.support.ports import free_ports
from tests.support.router import Router, served_router

TOKENS = list(range(64))
BLOCKS = prefix_digests(TOKENS, 16)
DEADLINE_S = 10.0
Ask = Callable[..., Any]


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    """One that knows where the prompt is."""
    async with served_router() as router:
        update = CacheStateUpdate(
            replica_id="engine-1",
            tenant_id="t",
            model_id="m",
            hash_scheme="vllm",
            prefixes=[PrefixEntry(block_hashes=BLOCKS, block_token_counts=[16] * 4)],
        )
        await router.stub.ReportCacheState(iter([update]))
        yield router


async def asked(kind: type[Client | AsyncClient], *addresses: str, prompt: Prompt, **fields: Any) -> Hint:
    """One lookup by either client; that which blocks does so in a thread."""
    options = {"tenant": "t", "deadline_s": DEADLINE_S, **fields}
    if kind is AsyncClient:
        async with AsyncClient(*addresses, **options) as client:
            return await client.lookup("m", prompt)

    def ask() -> Hint:
        with Client(*addresses, **options) as client:
            return client.lookup("m", prompt)

    return await asyncio.to_thread(ask)


both = pytest.mark.parametrize("kind", [Client, AsyncClient])


@both
@pytest.mark.parametrize("prompt", [Prompt.of_tokens(TOKENS), Prompt.of_blocks(BLOCKS, [16] * 4)])
async def test_a_hint_names_who_holds_the_prompt(
    router: Router, kind: type[Client | AsyncClient], prompt: Prompt
) -> None:
    hint = await asked(kind, router.server.address, prompt=prompt)
    assert hint.reason == "PREFIX_MATCH"
    assert hint.replica == "engine-1"
    (ranked,) = hint.replicas
    assert (ranked.id, ranked.matched_tokens, ranked.tier) == ("engine-1", 64, 1)


@both
async def test_where_no_router_is_the_hint_says_so(kind: type[Client | AsyncClient]) -> None:
    (port,) = free_ports(1)
    hint = await asked(kind, f"127.0.0.1:{port}", prompt=Prompt.of_tokens(TOKENS))
    assert hint == Hint(UNREACHABLE)
    assert hint.replica == ""


@both
async def test_one_router_that_is_gone_is_passed_over(
    router: Router, kind: type[Client | AsyncClient]
) -> None:
    (port,) = free_ports(1)
    addresses = (f"127.0.0.1:{port}", router.server.address)
    assert (await asked(kind, *addresses, prompt=Prompt.of_tokens(TOKENS))).replica == "engine-1"


@both
async def test_a_router_that_does_not_answer_costs_no_more_than_the_deadline(
    kind: type[Client | AsyncClient],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start_s = time.monotonic()
        hint = await asked(kind, address, prompt=Prompt.of_tokens(TOKENS), deadline_s=0.2)
    assert hint.reason in (TIMEOUT, UNREACHABLE)
    assert time.monotonic() - start_s < 5


@both
@pytest.mark.parametrize("tokens", [[-1], [2**32], ["a"]])
async def test_a_prompt_that_cannot_be_sent_is_a_hint_too(
    kind: type[Client | AsyncClient], tokens: list[Any]
) -> None:
    assert await asked(kind, "127.0.0.1:1", prompt=Prompt.of_tokens(tokens)) == Hint(INVALID_REQUEST)


def test_a_client_that_is_closed_gives_hints_of_nobody() -> None:
    client = Client("127.0.0.1:1", "127.0.0.1:2", tenant="t", deadline_s=DEADLINE_S)
    client.close()
    assert client.lookup("m", Prompt.of_tokens(TOKENS)) == Hint(UNREACHABLE)


async def test_a_lookup_outlives_the_closing_of_its_client_and_not_its_own_cancellation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = AsyncClient(address, tenant="t", deadline_s=DEADLINE_S)
        running, cancelled = (
            asyncio.ensure_future(client.lookup("m", Prompt.of_tokens(TOKENS))) for _ in range(2)
        )
        connection, _ = await asyncio.to_thread(silent.accept)
        cancelled.cancel()
        with connection:
            await client.close()
        assert await running == Hint(UNREACHABLE)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await client.lookup("m", Prompt.of_tokens(TOKENS)) == Hint(UNREACHABLE)


@pytest.mark.rule("WIRE-230", "WIRE-231")
@pytest.mark.parametrize(
    ("reason", "replica"), [("PREFIX_MATCH", "a"), ("AFFINITY_HINT", "a"), ("TENANT_HOT", "")]
)
def test_only_hints_about_this_prompt_are_followed(reason: str, replica: str) -> None:
    assert Hint(reason, [RankedReplica("a")]).replica == replica


async def test_connections_are_kept_between_lookups(router: Router) -> None:
    async with AsyncClient(router.server.address, tenant="t", deadline_s=DEADLINE_S) as client:
        for _ in range(20):
            assert (await client.lookup("m", Prompt.of_tokens(TOKENS))).replica == "engine-1"
        (channel,) = client._channels
        assert channel.get_state() is grpc.ChannelConnectivity.READY


def test_a_client_of_nobody_is_a_mistake_that_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Client(tenant="t")


def test_both_clients_have_the_same_face() -> None:
    for name in ("__init__", "lookup"):
        assert inspect.signature(getattr(Client, name)) == inspect.signature(getattr(AsyncClient, name))
