"""`inferencecache replay`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inferencecache.cli.connected import CommandError, failed, over_nats
from inferencecache.cli.form import Form, takes_form
from inferencecache.cli.nats import takes_nats
from inferencecache.cli.prompts import hash_chain, hash_of, token_ids
from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.index.request import MAX_TOKENS, RouteRequest
from inferencecache.core.log import Log
from inferencecache.core.log.subjects import partition_of, partitions_of
from inferencecache.core.service import NatsSettings, configure_logging
from inferencecache.schemas.ids import AdapterId, HashScheme, ModelId, ReplicaId, TenantId
from inferencecache.schemas.senders import ReplicaSender

if TYPE_CHECKING:
    from inferencecache.cli.replaying.answers import Job
    from inferencecache.cli.replaying.source import Source

    Answer = Callable[[Job], Awaitable[None]]

DEMO_TENANT: Final = "demo"
DEMO_MODEL: Final = "demo-model"
_HASH: Final = re.compile("([0-9a-fA-F]{2})+")

_TELLS_THE_WAY: Final = ("--events", "--why", "--export")
"""What is about the messages on the way, not about the end."""


@takes_nats
@takes_form()
def replay(
    until: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ|TIME",
            help="Up to this point: a log sequence, a time as in 2026-05-04T10:00:00Z, or how long ago, as "
            "in 5m; default: the end of the log.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ|TIME",
            help="With --events, --why and --export: what came behind this point; default: all there is.",
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="List the records as they were, and whether they counted.")
    ] = False,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SEQ|TIME SEQ|TIME", help="Compare the index at two points."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Answer a lookup as the log alone answers it, with every ranking factor; the prompt is "
            "given by --tokens, --hashes or --prefix-hash. Work assigned lately is not in the log.",
        ),
    ] = False,
    why: Annotated[
        str | None,
        typer.Option(
            metavar="HASH|TOKENS",
            help="Tell what became of a prefix on --replica: a block hash in hex, or the prompt's token ids "
            "as 1,2,7..9 or @FILE.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a slice, base and log, that replays anywhere by --from."),
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Replay a slice; no network is used.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help=f"Only this tenant; for a lookup or prefix: {DEMO_TENANT}.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help=f"Only this model; for a lookup or prefix: {DEMO_MODEL}.")
    ] = None,
    replica: Annotated[str | None, typer.Option(help="Only this replica.")] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Only this partition; may be repeated. Default: all that may matter."),
    ] = None,
    generation: Annotated[
        int | None, typer.Option(min=1, help="Generation of the layout; default: the one in force.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="With --explain: token ids of the prompt, 1,2,7..9 or @FILE with them.")
    ] = None,
    hashes: Annotated[
        str | None, typer.Option(help="With --explain: block hashes in hex, first block first: a1b2…,c3d4…")
    ] = None,
    prefix_hash: Annotated[str | None, typer.Option(help="With --explain: one exact key in hex.")] = None,
    scheme: Annotated[str, typer.Option(help="Hash scheme of the engines: vllm or sglang.")] = "vllm",
    adapter: Annotated[str, typer.Option(help="LoRA adapter; empty is the base model.")] = "",
    block_size: Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Tokens a block.")] = 16,
    *,
    output: Form,
    nats: NatsSettings,
) -> None:
    """Rebuild the index from the log as it was at any point, and say why it was so.

    Without more it shows what every replica held. A replay begins at the nearest snapshot before what is
    asked for, or at the start of the log; before the oldest of these nothing can be rebuilt, and it says so.
    Nothing is written, and prompts stay here: only their hashes are compared.

    \b
    Try:
      inferencecache replay
      inferencecache replay --until 5s --json
      inferencecache replay --events --since 10s --tenant demo --model demo-model
      inferencecache replay --diff 10s 0s
      inferencecache replay --explain --tokens 1..80
      inferencecache replay --why 1..80 --replica engine-1
      inferencecache replay --export incident.slice
      inferencecache replay --from incident.slice --explain --tokens 1..80
    """  # noqa: D301 - click takes \b for: keep these lines as they are
    # What folds the log loads compiled kernels, which takes seconds; no other command should wait for them.
    from inferencecache.cli.replaying import answers  # noqa: PLC0415
    from inferencecache.cli.replaying.live import LiveLog  # noqa: PLC0415
    from inferencecache.cli.replaying.points import is_reversed, point  # noqa: PLC0415
    from inferencecache.cli.replaying.run import ReversedSpanError, Span  # noqa: PLC0415
    from inferencecache.cli.replaying.sliced import SlicedLog  # noqa: PLC0415
    from inferencecache.core.replay import AtSequence, Filter  # noqa: PLC0415

    forms = {
        "--events": events,
        "--diff": diff is not None,
        "--explain": explain,
        "--why": why is not None,
        "--export": export is not None,
    }
    asked = [name for name, is_asked in forms.items() if is_asked]
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(asked)} are different questions; ask one at a time")
    form = asked[0] if asked else ""
    if since is not None and form not in _TELLS_THE_WAY:
        raise typer.BadParameter(f"--since goes with {', '.join(_TELLS_THE_WAY)}; --diff compares two points")
    if diff is not None:
        if until is not None:
            raise typer.BadParameter("--diff names both points; leave --until out")
        since, until = diff
    only = Filter(tenant, model, replica)
    if export is not None and only != Filter():
        raise typer.BadParameter("--export takes whole partitions: choose them by --partition")
    if explain and replica is not None:
        raise typer.BadParameter("--explain ranks every replica; leave --replica out")
    prompts = [given for given in (tokens, hashes, prefix_hash) if given is not None]
    if len(prompts) != explain:
        raise typer.BadParameter(
            "--explain takes the prompt in exactly one form, --tokens, --hashes or --prefix-hash"
        )
    domain = TenantId(tenant or DEMO_TENANT), ModelId(model or DEMO_MODEL)
    answer: Answer = answers.tell_state
    of: ReplicaSender | None = None
    if events:
        answer = answers.tell_events
    elif diff is not None:
        answer = answers.tell_difference
    elif explain:
        chain = hash_chain(hashes, "--hashes") if hashes is not None else []
        request = RouteRequest(
            *domain,
            HashScheme(scheme),
            AdapterId(adapter),
            prefix_hash=hash_of(prefix_hash, "--prefix-hash") if prefix_hash is not None else b"",
            block_hashes=chain,
            block_token_counts=[block_size] * len(chain),
            token_ids=token_ids(tokens, "--tokens") if tokens is not None else (),
            block_size=block_size,
        )
        answer = partial(answers.tell_explanation, request=request)
    elif why is not None:
        if replica is None:
            raise typer.BadParameter("--why is about one replica: name it with --replica")
        of = ReplicaSender(*domain, ReplicaId(replica))
        hashes_of = _prefix(why, block_size)
        answer = partial(answers.tell_history, of=of, scheme=scheme, adapter=adapter, hashes=hashes_of)
    elif export is not None:
        answer = partial(answers.write_slice, path=export)

    async def work(source: Source) -> int:
        options = ("--since", "--until") if diff is None else ("--diff", "--diff")
        points = [
            None if text is None else point(text, option, source.now_ns)
            for text, option in zip((since, until), options, strict=True)
        ]
        is_by_sequence = any(isinstance(each, AtSequence) for each in points)
        reversed_ = typer.BadParameter(
            f"{options[0]}: {since} is behind {until}; write the earlier point first"
        )
        if is_reversed(*points):
            raise reversed_
        wanted: Sequence[int] = partition or source.partitions
        if of is not None:
            its = partition_of(of.tenant, of.model, of.replica, source.layout)
            if partition and its not in partition:
                raise typer.BadParameter(
                    f"what {of.replica} reports is in partition {its}: change --partition"
                )
            wanted = (its,)
        elif not partition and (is_by_sequence if explain else tenant and model):
            # What is known of other models decides some reasons of an explanation: it takes them all in.
            wanted = partitions_of(*domain, source.layout)
        chosen = _chosen(source, wanted)
        if is_by_sequence and len(chosen) > 1:
            raise typer.BadParameter(
                "a log sequence is of one partition: name it with --partition, or give a time"
            )
        span = Span(points[0], points[1], from_oldest=form in _TELLS_THE_WAY)
        try:
            await answer(answers.Job(source, chosen, span, only, output))
        except ReversedSpanError:
            raise reversed_ from None
        return 0

    async def live(log: Log) -> int:
        return await work(await LiveLog.open(log, generation))

    if from_file is None:
        raise typer.Exit(over_nats(nats, "replay", live))
    configure_logging("text", "error")
    try:
        raise typer.Exit(asyncio.run(work(SlicedLog.open(from_file, generation))))
    except CommandError as error:
        raise failed("replay", error) from None


def _chosen(source: Source, wanted: Sequence[int]) -> list[int]:
    missing = sorted(set(wanted).difference(source.partitions))
    if missing:
        has = ", ".join(map(str, source.partitions))
        raise CommandError(
            f"there is no partition {', '.join(map(str, missing))} in what is replayed, generation "
            f"{source.layout.generation}: only {has}"
        )
    return sorted(set(wanted))


def _prefix(text: str, block_size: int) -> list[bytes]:
    """The hashes of a prefix: one that is given, or those of the prompt's whole blocks."""
    if _HASH.fullmatch(text):
        return [hash_of(text, "--why")]
    chain = prefix_digests(token_ids(text, "--why"), block_size)
    if not chain:
        raise typer.BadParameter(f"--why: the prompt has no whole block of {block_size}; see --block-size")
    return chain
