"""`inferencecache lookup`."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import grpc
import grpc.aio
import msgspec
import typer
from rich.table import Table
from rich.text import Text

from inferencecache.cli.connected import failed
from inferencecache.cli.explanation import NotExplainedError, ask, show
from inferencecache.cli.form import Form, console_of_answers, takes_form, write_json
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.options import LONGEST_S
from inferencecache.cli.prompts import hash_chain, hash_of, token_ids
from inferencecache.cli.router import RouterSettings, channel_to, takes_router
from inferencecache.core.index.request import MAX_TOKENS
from inferencecache.core.log import NoAnswerError, NotConnectedError
from inferencecache.core.service import NatsSettings, configure_logging
from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from inferencecache.v1alpha1.inferencecache_pb2_grpc import InferenceCacheStub


@takes_nats
@takes_router
@takes_form()
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
    block_size: Annotated[
        int, typer.Option(min=1, max=MAX_TOKENS, help="Tokens a block, used with --hashes.")
    ] = 16,
    timeout: Annotated[
        float,
        typer.Option(min=0.001, max=LONGEST_S, help="Seconds to wait for the answer."),
    ] = 5.0,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Ask any one router, over NATS, why: every replica with each factor of its score, the work "
            "it was assigned lately, and the policy in force. It counts as no lookup.",
        ),
    ] = False,
    *,
    output: Form,
    router: RouterSettings,
    nats: NatsSettings,
) -> None:
    """Ask a router which engines hold the beginning of a prompt.

    Give the prompt in one form: --tokens, --hashes, --prefix-hash or --text. The exit code is 0 whatever
    the answer says, and 1 when the router cannot be asked.

    \b
    Try:
      inferencecache lookup --tokens 1..80
      inferencecache lookup --tokens @prompt.txt --tenant demo --model demo-model --json
      inferencecache lookup --tokens 1..80 --explain
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    try:
        request = pb.LookupRouteRequest(
            model_id=model, tenant_id=tenant, hash_scheme=scheme, adapter_id=adapter, prompt_text=text or ""
        )
    except UnicodeEncodeError:
        raise typer.BadParameter("the arguments are not UTF-8; see the locale of this terminal") from None
    if sum(form is not None for form in (tokens, hashes, text, prefix_hash)) != 1:
        raise typer.BadParameter(
            "give the prompt in exactly one form: --tokens, --hashes, --prefix-hash or --text"
        )
    if tokens is not None:
        request.token_ids.extend(token_ids(tokens, "--tokens"))
    if hashes is not None:
        chain = hash_chain(hashes, "--hashes")
        request.block_hashes.extend(chain)
        request.block_token_counts.extend([block_size] * len(chain))
    if prefix_hash is not None:
        request.prefix_hash = hash_of(prefix_hash, "--prefix-hash")
    if explain:
        _explain(nats, request, timeout, as_json=output is Form.JSON)
        return
    try:
        answer = asyncio.run(_ask(router, request, timeout))
    except grpc.aio.AioRpcError as error:
        reason = f"{error.code().name}: {error.details()}"
        raise failed("lookup", f"no answer from {router.address} ({reason}); set --router") from None
    if output is Form.JSON:
        write_json(_document(answer))
    else:
        _show(answer)


def _explain(nats: NatsSettings, request: pb.LookupRouteRequest, timeout_s: float, *, as_json: bool) -> None:
    configure_logging("text", "error")
    try:
        explanation = asyncio.run(ask(nats, request, timeout_s))
    except (NotConnectedError, NotExplainedError) as error:
        raise failed("lookup", error) from None
    except NoAnswerError:
        raise failed("lookup", f"no router explains at {nats.address}; check --nats-url") from None
    if as_json:
        sys.stdout.write(msgspec.json.encode(explanation).decode() + "\n")
    else:
        show(explanation, console_of_answers())


async def _ask(
    router: RouterSettings, request: pb.LookupRouteRequest, timeout_s: float
) -> pb.LookupRouteResponse:
    async with channel_to(router) as channel:
        answer: pb.LookupRouteResponse = await InferenceCacheStub(channel).LookupRoute(
            request, timeout=timeout_s
        )
        return answer


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
    console = console_of_answers()
    console.print(
        Text.assemble((answer.reason_code, "bold"), f"  ({answer.lookup_latency_us} µs in the router)")
    )
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
