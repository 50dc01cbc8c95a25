"""`inferencecache lookup`."""

from __future__ import annotations

import asyncio
import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

import grpc
import grpc.aio
import typer
from rich.console import Console
from rich.table import Table

from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub


def lookup(
    tokens: Annotated[
        str | None, typer.Option(help="Token ids of the prompt: 1,2,7..9 or @FILE with them.")
    ] = None,
    hashes: Annotated[
        str | None, typer.Option(help="Block hashes of the prompt in hex, first block first: a1b2…,c3d4…")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Prompt text; the router needs a tokenizer for it.")
    ] = None,
    prefix_hash: Annotated[str | None, typer.Option(help="One exact key in hex.")] = None,
    model: Annotated[str, typer.Option(help="Model id.")] = "demo-model",
    tenant: Annotated[str, typer.Option(help="Tenant; by convention the namespace of the engines.")] = "demo",
    scheme: Annotated[str, typer.Option(help="Hash scheme of the engines: vllm or sglang.")] = "vllm",
    adapter: Annotated[str, typer.Option(help="LoRA adapter; empty is the base model.")] = "",
    block_size: Annotated[int, typer.Option(min=1, help="Tokens a block, used with --hashes.")] = 16,
    router: Annotated[str, typer.Option(help="Address of a router.")] = "127.0.0.1:9090",
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as one JSON object.")] = False,
) -> None:
    """Ask a router which engines hold the beginning of a prompt.

    Give the prompt in one form: --tokens, --hashes, --prefix-hash or --text. The exit code is 0 whatever
    the answer says, and 1 when the router cannot be asked.

    \b
    Try:
      inferencecache lookup --tokens 1..80
      inferencecache lookup --tokens @prompt.txt --tenant demo --model demo-model --json
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    request = pb.LookupRouteRequest(
        model_id=model, tenant_id=tenant, hash_scheme=scheme, adapter_id=adapter, prompt_text=text or ""
    )
    if sum(form is not None for form in (tokens, hashes, text, prefix_hash)) != 1:
        raise typer.BadParameter(
            "give the prompt in exactly one form: --tokens, --hashes, --prefix-hash or --text"
        )
    if tokens is not None:
        request.token_ids.extend(_token_ids(tokens))
    if hashes is not None:
        chain = [_hex(item, "--hashes") for item in hashes.replace(",", " ").split()]
        request.block_hashes.extend(chain)
        request.block_token_counts.extend([block_size] * len(chain))
    if prefix_hash is not None:
        request.prefix_hash = _hex(prefix_hash, "--prefix-hash")
    try:
        answer = asyncio.run(_ask(router, request, timeout))
    except grpc.aio.AioRpcError as error:
        reason = f"{error.code().name}: {error.details()}"
        typer.echo(f"inferencecache lookup: no answer from {router} ({reason}); set --router", err=True)
        raise typer.Exit(1) from None
    if json:
        sys.stdout.write(json_format.dumps(_document(answer)) + "\n")
    else:
        _show(answer)


async def _ask(router: str, request: pb.LookupRouteRequest, timeout_s: float) -> pb.LookupRouteResponse:
    async with grpc.aio.insecure_channel(router) as channel:
        answer: pb.LookupRouteResponse = await InferenceCacheStub(channel).LookupRoute(
            request, timeout=timeout_s
        )
        return answer


def _token_ids(text: str) -> list[int]:
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except OSError as error:
            raise typer.BadParameter(f"--tokens: cannot read {text[1:]}: {error.strerror}") from None
    ids: list[int] = []
    for item in text.replace(",", " ").split():
        first, dots, last = item.partition("..")
        try:
            ids += range(int(first), int(last) + 1) if dots else [int(first)]
        except ValueError:
            raise typer.BadParameter("--tokens: write whole numbers or ranges, as in 1,2,7..9") from None
    if not ids or not all(0 <= token < 2**32 for token in ids):
        raise typer.BadParameter("--tokens: write one or more numbers from 0 to 4294967295")
    return ids


def _hex(text: str, option: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise typer.BadParameter(f"{option}: {text!r} is not hexadecimal") from None


def _document(answer: pb.LookupRouteResponse) -> dict[str, Any]:
    return {
        "reason_code": answer.reason_code,
        "replica_scores": [
            {
                "replica_id": score.replica_id,
                "score": score.score,
                "matched_tokens": score.matched_tokens,
                "estimated_cache_hit_prob": score.estimated_cache_hit_prob,
                "tier": _tier(score),
            }
            for score in answer.replica_scores
        ],
        "lookup_latency_us": answer.lookup_latency_us,
        "adapter_id": answer.adapter_id,
        "token_ids": list(answer.token_ids),
    }


def _show(answer: pb.LookupRouteResponse) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{answer.reason_code}[/bold]  ({answer.lookup_latency_us} µs in the router)")
    if not answer.replica_scores:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("replica")
    for heading in ("score", "matched tokens", "hit probability", "tier"):
        table.add_column(heading, justify="right")
    for score in answer.replica_scores:
        table.add_row(
            score.replica_id,
            f"{score.score:.2f}",
            str(score.matched_tokens),
            f"{score.estimated_cache_hit_prob:.3f}",
            _tier(score),
        )
    console.print(table)


def _tier(score: pb.ReplicaScore) -> str:
    return pb.CacheTier.Name(score.tier).removeprefix("CACHE_TIER_")
