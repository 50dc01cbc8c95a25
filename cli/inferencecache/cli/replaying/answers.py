"""What a replay is asked, each answer from its rebuilding to its form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import typer

from inferencecache.cli.connected import CommandError
from inferencecache.cli.explanation import show as show_explanation
from inferencecache.cli.form import Form, console_of_answers, write_json
from inferencecache.cli.replaying.progress import progress
from inferencecache.cli.replaying.report import event_line, show_difference, show_history, show_state
from inferencecache.cli.replaying.run import Begun, Replayed, Span, Visitor, moment, replay
from inferencecache.cli.replaying.source import Source
from inferencecache.core.index.fold import Fold, Folded, LogMessage
from inferencecache.core.index.policy import Policies, knobs_of
from inferencecache.core.index.request import RouteRequest
from inferencecache.core.log.subjects import partitions_of
from inferencecache.core.policy import Intent
from inferencecache.core.replay import (
    Filter,
    History,
    Point,
    RawMessage,
    SliceWriter,
    Standpoint,
    difference,
    explain_at,
    log_time_us,
    policies_at,
    state_of,
    told,
)
from inferencecache.schemas.policy import PolicySet
from inferencecache.schemas.senders import ReplicaSender


class Job(NamedTuple):
    """What is replayed, whatever is asked of it."""

    source: Source
    partitions: Sequence[int]
    span: Span
    only: Filter
    form: Form


async def tell_state(job: Job) -> None:
    """Where the partitions stand."""
    reached = await _replay_all(job)
    states = [state_of(each.partition, each.rebuild.fold, job.only) for each in reached]
    if job.form is Form.JSON:
        _write({"generation": job.source.layout.generation, "partitions": states})
        return
    for replayed, state in zip(reached, states, strict=True):
        show_state(replayed, state, console_of_answers())


async def tell_events(job: Job) -> None:
    """Every record, a line each, as the log goes by."""
    await _replay_all(job, _Events(job), is_quiet=True)


class _Events(Visitor):
    def __init__(self, job: Job) -> None:
        self._job = job
        self._partition = 0
        self._console = console_of_answers()

    def begins(self, begun: Begun) -> None:
        self._partition = begun.partition

    def folded(self, raw: RawMessage, message: LogMessage, folded: Folded) -> None:
        since = self._job.span.since
        if since is not None and since.offset(raw.position) <= 0:
            return
        if not self._job.only.takes_sender(message.sender):
            return
        for record in told(self._partition, message, folded):
            if self._job.form is Form.JSON:
                _write(record)
            else:
                self._console.print(event_line(record), soft_wrap=True)


async def tell_difference(job: Job) -> None:
    """How the states at the span's two points differ."""
    departures = _Departures(job.span.since, job.only)
    differences = []
    for replayed in await _replay_all(job, departures):
        after = Standpoint(replayed.partition, replayed.rebuild.fold, job.only)
        differences.append(difference(departures.of.get(replayed.partition, after), after))
    if job.form is Form.JSON:
        _write({"generation": job.source.layout.generation, "partitions": differences})
        return
    for found in differences:
        show_difference(found, console_of_answers())


class _Departures(Visitor):
    """Keeps where each partition stood at a point, if anything comes behind it."""

    def __init__(self, at: Point | None, only: Filter) -> None:
        self.of: dict[int, Standpoint] = {}
        self._at = at
        self._only = only

    def begins(self, begun: Begun) -> None:
        self._partition, self._fold = begun.partition, begun.rebuild.fold

    def comes(self, raw: RawMessage) -> None:
        is_behind = self._at is None or self._at.offset(raw.position) > 0
        if is_behind and self._partition not in self.of:
            self.of[self._partition] = Standpoint(self._partition, self._fold, self._only)


async def tell_explanation(job: Job, request: RouteRequest) -> None:
    """How the log alone answers a lookup."""
    lanes = partitions_of(request.tenant, request.model, job.source.layout)
    missing = set(lanes).difference(job.partitions)
    if missing:
        raise CommandError(
            f"{request.tenant}/{request.model} is also in partition {', '.join(map(str, sorted(missing)))}, "
            "which is not replayed; leave --partition out, or export a slice with it"
        )
    folds = {each.partition: each.rebuild.fold for each in await _replay_all(job)}
    policies = await _policies(job.source, folds[lanes[0]])
    explanation = explain_at(folds, lanes, policies, request)
    if job.form is Form.JSON:
        _write(explanation)
        return
    console = console_of_answers()
    show_explanation(explanation, console)
    for lane in lanes:
        at = folds[lane].view.log
        said = f"partition {lane} behind message {at.sequence} of {moment(at.time_ns)}"
        console.print(said, style="dim", soft_wrap=True)


async def tell_history(
    job: Job, of: ReplicaSender, scheme: str, adapter: str, hashes: Sequence[bytes]
) -> None:
    """What became of a prefix on a replica."""
    made: list[History] = []

    def history() -> History:
        made.append(History(of, scheme, adapter, hashes))
        return made[-1]

    (partition,) = job.partitions
    with progress() as bars:
        replayed = await replay(job.source, partition, job.span, advance=bars(partition), history=history)
    _note(replayed.notes)
    fold = replayed.rebuild.fold
    ttl_us = knobs_of((await _policies(job.source, fold)).policy(of.tenant)).ttl_us
    blocks, elsewhere = made[-1].blocks(fold.view, log_time_us(fold), ttl_us), made[-1].elsewhere()
    replicas = state_of(partition, fold, Filter(of.tenant, of.model, of.replica)).replicas
    first, last = replayed.base.at, replayed.rebuild.position
    if job.form is Form.JSON:
        _write(
            {
                "partition": partition,
                "since": first.sequence,
                "until": last.sequence,
                "ttlUs": ttl_us,
                "blocks": blocks,
                "elsewhere": elsewhere,
                "replica": replicas[0] if replicas else None,
            }
        )
        return
    console = console_of_answers()
    show_history(blocks, elsewhere, of, ttl_us, console)
    known = "" if replicas else f"; {of.replica} is unknown there"
    console.print(
        f"partition {partition} from message {first.sequence} of {moment(first.time_ns)} to {last.sequence} "
        f"of {moment(last.time_ns)}{known}",
        style="dim",
        soft_wrap=True,
    )


async def write_slice(job: Job, path: Path) -> None:
    """Export base and log to a file."""
    with _replaced(path) as file:
        export = _Export(SliceWriter(file.write, job.source.layout))
        reached = await _replay_all(job, export)
        policies = {revision: await job.source.policy_set(revision) for revision in export.revisions}
        export.writer.end({revision: found for revision, found in policies.items() if found is not None})
        size = file.tell()
    if job.form is Form.JSON:
        parts = [
            {
                "partition": each.partition,
                "base": each.base.name,
                "since": each.base.at.sequence,
                "until": each.rebuild.position.sequence,
            }
            for each in reached
        ]
        _write({"file": str(path), "bytes": size, "partitions": parts})
        return
    typer.echo(f"{path}: {size / 1e6:.1f} MB")
    for each in reached:
        typer.echo(f"partition {each.partition}: {each.rebuild.folded} messages behind {each.base.name}")


class _Export(Visitor):
    """Writes what comes, and keeps which policy sets were in force."""

    def __init__(self, writer: SliceWriter) -> None:
        self.writer = writer
        self.revisions: set[int] = set()

    def begins(self, begun: Begun) -> None:
        self._fold = begun.rebuild.fold
        self._note_policy()
        self.writer.begin(begun.partition, begun.base.at, begun.pieces)

    def folded(self, raw: RawMessage, message: LogMessage, folded: Folded) -> None:
        self._note_policy()
        self.writer.add(raw)

    def _note_policy(self) -> None:
        if self._fold.policy.revision:
            self.revisions.add(self._fold.policy.revision)


async def _replay_all(job: Job, visitor: Visitor | None = None, *, is_quiet: bool = False) -> list[Replayed]:
    """Every partition, one after the other; a quiet one has no progress among its lines."""
    reached = []
    with progress(is_quiet) as bars:
        for partition in job.partitions:
            replayed = await replay(job.source, partition, job.span, visitor, advance=bars(partition))
            _note(replayed.notes)
            reached.append(replayed)
    return reached


async def _policies(source: Source, fold: Fold) -> Policies:
    """The policy set in force where the fold stands, or what the log itself has of it."""
    revision = fold.policy.revision
    if not revision:
        return Policies(PolicySet())
    intent, document = Intent(), await source.policy_set(revision)
    if document is not None and intent.set_policies(document, revision):
        return intent.policies
    why = intent.refused or f"policy set {revision} is not kept any more"
    _note([f"{why}; of it the log has time to live, algorithm and quotas, all else is taken as default"])
    return policies_at(fold)


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there once it is whole."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; choose another --export") from None
    finally:
        part.unlink(missing_ok=True)


def _note(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(note, err=True)


def _write(answer: object) -> None:
    write_json(msgspec.to_builtins(answer))
