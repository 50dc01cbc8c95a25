"""Why a lookup is answered as it is: asked of a router over NATS, and shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferencecache.core.log import Log
from inferencecache.core.log.subjects import EXPLAIN_SUBJECT
from inferencecache.core.service import NatsSettings
from inferencecache.schemas.explanations import ExplainedReplica, Explanation
from inferencecache.schemas.unreadable import UNREADABLE
from inferencecache.v1alpha1.inferencecache_pb2 import LookupRouteRequest

HEADINGS: Final = (
    "matched tokens",
    "freshness",
    "pressure",
    "SLO",
    "power",
    "without load",
    "work W",
    "penalty",
    "score",
)


class NotExplainedError(Exception):
    """A router could not decide; the text is its own."""


async def ask(nats: NatsSettings, request: LookupRouteRequest, timeout_s: float) -> Explanation:
    """What any one router says. Raises `NotConnectedError`, `NoAnswerError` and `NotExplainedError`."""
    log = await Log.connect(nats, name="inferencecache lookup", timeout_s=timeout_s)
    try:
        answer = await log.request(EXPLAIN_SUBJECT, request.SerializeToString(), timeout_s=timeout_s)
    finally:
        await log.close()
    try:
        explanation = msgspec.json.decode(answer.data, type=Explanation)
    except UNREADABLE as error:
        raise NotExplainedError(f"the answer is no explanation: {error}") from None
    if explanation.error:
        raise NotExplainedError(explanation.error)
    return explanation


def show(explanation: Explanation, console: Console) -> None:
    """The decision, and a row for each replica it could have named: the answer first.

    Names are anybody's, so the `console` takes no markup.
    """
    by = f"  by router {explanation.router}" if explanation.router else ""
    console.print(Text.assemble((explanation.reason, "bold"), by))
    for line in _conditions(explanation):
        console.print(line, style="dim")
    if not explanation.replicas:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("replica")
    for heading in HEADINGS:
        table.add_column(heading.replace(" ", "\n"), justify="right")
    for replica in explanation.replicas:
        table.add_row(*_row(replica), style="" if replica.rank else "dim")
    console.print(table)
    if any(not replica.member for replica in explanation.replicas):
        console.print("* began and holds nothing yet", style="dim")


def _conditions(explanation: Explanation) -> Iterator[str]:
    if explanation.gate:
        yield f"{explanation.gate} of the policy let nothing through of what was found"
    yield (
        f"prompt of {explanation.prompt_tokens} tokens; time to live {explanation.ttl_ms / 1000:g} s, "
        f"minimumPrefixTokens {explanation.minimum_prefix_tokens}, "
        f"minimumMatchedTokens {explanation.minimum_matched_tokens}, "
        f"routingFloorScore {explanation.routing_floor_score:g}"
    )
    if explanation.load_balancing:
        yield f"score = without load - {explanation.load_weight:g} x (W - least W of all)"
    else:
        yield "loadBalancing is Disabled: work assigned lately does not count"


def _row(replica: ExplainedReplica) -> tuple[str, ...]:
    place = f"{replica.rank}." if replica.rank else ""
    name = replica.replica if replica.member else f"{replica.replica} *"
    load = (f"{replica.work_tokens:.0f}", f"{replica.penalty:.1f}")
    score = f"{replica.score:.2f}" if replica.rank or replica.value else "-"
    if not replica.value:
        return (place, name, *("-",) * 6, *load, score)
    return (
        place,
        name,
        str(replica.matched_tokens),
        f"{replica.freshness:.3f}",
        f"{replica.pressure_factor:.3f}",
        f"{replica.slo_bias:.3f}",
        f"{replica.distinguishing_power:.3f}",
        f"{replica.unbalanced_score:.2f}",
        *load,
        score,
    )
