"""The record decoder and the fold: a script of messages, of any sender, on top of a log.

After every message the fold must stand where the model of the rules stands; a dropped message changes
nothing, as a twin shows that never sees one; and messages behind it still count. At the end what was
folded must survive a delta and a snapshot.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from inferencecache.core.index.fold import Fold, LogMessage
from inferencecache.core.index.reading import Scope
from inferencecache.core.index.snapshot import encode_snapshot, load_fold, load_view
from inferencecache.schemas.ids import (
    AdapterId,
    HashScheme,
    Incarnation,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    AnyRecord,
    Batch,
    Budget,
    Claim,
    Credit,
    DecodedBatch,
    Gone,
    PolicyApplied,
    Tick,
    UndecodableBatchError,
    decode_batch,
    encode_batch,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender
from tests.fuzz.mutation import Message, join, mutate_msgpack, script_mutation, script_parts, split
from tests.fuzz.target import Target
from tests.fuzz.worlds import LAST_SEQUENCES, OWNER, SENDERS, fold_state_of, folded, log
from tests.oracle.logs import START_US, evicted, stored
from tests.oracle.model import NaiveFold
from tests.oracle.random_log import RandomLog
from tests.oracle.trial import Folded, Published, Reloaded, Restored, Trial
from tests.unit.schemas.samples import RECORDS

_GOLDEN: Final = Path(__file__).parents[1] / "data" / "golden" / "log_v1.json"
_STEPS_US: Final = (0, 20_000, 1_000_000, 3_000_000, 600_000_000, 3_600_000_000, -1_000_000, -3_600_000_000)
"""Kind = sender + 16 * how the log's time moves."""
_GOOD: Final = ReplicaSender(TenantId("good"), ModelId("m"), ReplicaId("good"), "g")


def run(data: bytes) -> None:
    naive, snapshot = _start()
    trial = Trial()
    trial.naive = copy.deepcopy(naive)
    trial.fold = load_fold(snapshot, 1 << 8)
    trial.follower = load_view(snapshot, 1 << 8)
    twin = load_fold(snapshot, 1 << 8)
    sequence, stamp_us = naive.position.sequence, naive.position.time_ns // 1000
    for kind, payload in split(data):
        sequence += 1
        stamp_us += _STEPS_US[kind >> 4 & 7]
        position = Position(sequence, stamp_us * 1000, START_US * 1000)
        message = LogMessage(position, SENDERS[(kind & 15) % len(SENDERS)], _decoded(payload))
        _fold(trial, twin, message)
    for sender, records in _good_ones(trial.fold, stamp_us):
        sequence += 1
        position = Position(sequence, stamp_us * 1000, START_US * 1000)
        _fold(trial, twin, LogMessage(position, sender, DecodedBatch(Batch(records=records))))
    scope = Scope(_GOOD.tenant, _GOOD.model, HashScheme("vllm"))
    hits = trial.fold.view.exact(scope, AdapterId(""), b"good", trial.fold.view.time_us, 1_000_000)
    assert [(hit.replica, hit.token_count) for hit in hits] == [("good", 64)], "a good message is not folded"
    assert fold_state_of(trial.fold) == fold_state_of(twin), "a dropped message left something behind"
    for step in (Published(300), Reloaded(), Restored()):
        difference = trial.take(step)
        assert difference is None, f"{step}: {difference}"
    assert fold_state_of(trial.fold) == fold_state_of(twin), "a snapshot lost something"


def _fold(trial: Trial, twin: Fold, message: LogMessage) -> None:
    before = trial.fold.view.digest, trial.fold.view.access_digest
    difference = trial.take(Folded(message))
    assert difference is None, difference
    if trial.dropped is None or trial.dropped == "jump":  # a jump puts in doubt what is held
        twin.fold(message)
    else:
        assert before == (trial.fold.view.digest, trial.fold.view.access_digest), trial.dropped


def _decoded(payload: bytes) -> DecodedBatch | None:
    try:
        decoded = decode_batch(payload)
    except UndecodableBatchError:
        return None
    again = decode_batch(encode_batch(decoded.batch))
    assert encode_batch(again.batch) == encode_batch(decoded.batch), "a batch is not what it is written as"
    assert (again.unknown, again.malformed) == (0, 0)
    return decoded


def _good_ones(fold: Fold, stamp_us: int) -> Iterator[tuple[Sender, tuple[AnyRecord, ...]]]:
    """What a new owner and a new producer would send next, whatever happened before."""
    owner, epoch = OwnerId("good"), fold.view.log_epoch or LogEpoch("good")
    yield ControlSender("o"), (Claim(owner, epoch),)
    terms = owner, fold.view.owner_epoch
    budget = Budget(*terms, -1, division=fold.budget.division)
    yield ControlSender("o"), (PolicyApplied(*terms, 1), budget, Tick(*terms, stamp_us))
    yield _GOOD, (stored([b"good"], [64]),)


@cache
def _start() -> tuple[NaiveFold, tuple[bytes, ...]]:
    """The model and a snapshot of the product's fold after the same log."""
    writer = log()
    naive = NaiveFold()
    for message in writer.messages:
        naive.fold(message)
    return naive, tuple(encode_snapshot(folded(writer), Position()))


def _seeds() -> list[bytes]:
    """Golden batches as they are; then a record of each kind, and several at random, in the envelopes with
    which this log counts them.
    """
    golden = [
        bytes.fromhex(text) for name, text in json.loads(_GOLDEN.read_text()).items() if "batch" in name
    ]
    random = Random(1)
    random_log = RandomLog(random)
    scripts = [[Message(random.randrange(128), payload) for payload in golden]]
    scripts += [[_enveloped(list(LAST_SEQUENCES), 0, (record,))] for record in RECORDS.values()]
    scripts.append([_enveloped([], 3, (evicted(b""), stored([b""] * 2, [1, 2])))])
    for _ in range(100):
        sequences = list(LAST_SEQUENCES)
        script = []
        for _ in range(random.randrange(1, 14)):
            decoded = random_log.message().batch
            records = decoded.batch.records if decoded is not None else ()
            script.append(_enveloped(sequences, random.randrange(5), records))
        scripts.append(script)
    return [join(script) for script in scripts]


def _enveloped(sequences: list[int], sender: int, records: Sequence[AnyRecord]) -> Message:
    """A message of this sender, or of the one who may send these records, 20 ms later."""
    match records:
        case [Claim() | Tick() | PolicyApplied() | Budget(), *_]:
            sender = OWNER
        case [Gone(), *_]:
            sender = OWNER + 1
        case [Credit(), *_]:
            sender = OWNER + 2
    batch = Batch(records=tuple(map(_of_owner, records)))
    if sender < len(sequences):
        sequences[sender] += 1
        batch = Batch(Incarnation(f"life-{sender}"), sequences[sender], 5, batch.records)
    return Message(sender + 16, encode_batch(batch))


def _of_owner(record: AnyRecord) -> AnyRecord:
    if isinstance(record, (Tick, Budget, PolicyApplied)):
        return msgspec.structs.replace(record, owner=OwnerId("owner"), owner_epoch=1)
    return record


TARGET: Final = Target(
    run, _seeds, script_mutation(mutate_msgpack, lambda random: random.randrange(128)), script_parts
)
