"""What counts of a log, and what the fold asks of producers [architecture, sections 2 and 3]."""

from __future__ import annotations

from typing import Literal

import pytest

from inferencecache.core.index.fold import Fold, Folded
from inferencecache.core.index.reading import Scope
from inferencecache.schemas.deltas import ReplicaName, ReplicaRow
from inferencecache.schemas.ids import (
    PROBE_TENANT,
    AdapterId,
    HashScheme,
    Incarnation,
    LogEpoch,
    ModelId,
    OwnerId,
    ReplicaId,
    TenantId,
)
from inferencecache.schemas.records import (
    Alive,
    AnyRecord,
    Begin,
    Claim,
    Cleared,
    Complete,
    Credit,
    Event,
    Gap,
    Gone,
    Stats,
    Stored,
    TenantPolicy,
    Tick,
)
from inferencecache.schemas.requests import ResyncRequest
from tests.oracle.logs import SECOND_US, LogWriter, evicted, stored

SCOPE = Scope(TenantId("t"), ModelId("m"), HashScheme("vllm"))
TTL_US = 1800 * SECOND_US
A, B, C = b"hash-aaa", b"hash-bbb", b"hash-ccc"


class Partition:
    """A log and its fold, claimed and with time started."""

    def __init__(self) -> None:
        self.fold = Fold(1 << 8)
        self.log = LogWriter()
        self._folded = 0
        self.log.claim()
        self.log.tick()
        self.step()

    def step(self) -> Folded:
        """Fold what was written; answers what came of the last message."""
        folded = Folded()
        for message in self.log.messages[self._folded :]:
            folded = self.fold.fold(message)
        self._folded = len(self.log.messages)
        return folded

    def begin(self, incarnation: str, *, uid: str = "", engine: str = "", sequence: int = 0) -> Folded:
        self.log.sidecar("r", incarnation, sequence, Begin(uid, engine))
        return self.step()

    def sidecar(self, incarnation: str, sequence: int, *records: AnyRecord, age_ms: int = 0) -> Folded:
        self.log.sidecar("r", incarnation, sequence, *records, age_ms=age_ms)
        return self.step()

    def holders(self, hash_: bytes, *, later_s: float = 0) -> list[str]:
        """Who holds the key, not stale."""
        now_us = self.fold.view.time_us + round(later_s * SECOND_US)
        return [hit.replica for hit in self.fold.view.exact(SCOPE, AdapterId(""), hash_, now_us, TTL_US)]

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.log.tick()
        self.step()

    @property
    def row(self) -> ReplicaRow | None:
        return self.fold.view.rows.get(ReplicaName(TenantId("t"), ModelId("m"), ReplicaId("r")))


@pytest.fixture
def partition() -> Partition:
    return Partition()


def resync(incarnation: str, begun_at: int = 0) -> ResyncRequest:
    return ResyncRequest("resync", Incarnation(incarnation), begun_at)


# ------------------------------------------------------------------------------------- sequences


def test_a_batch_counts_once_and_in_order(partition: Partition) -> None:
    partition.begin("i")
    assert partition.sidecar("i", 1, stored([A], [8])).dropped is None
    assert partition.sidecar("i", 1, evicted(A)).dropped == "duplicate"
    assert partition.begin("i").dropped == "duplicate"
    assert partition.holders(A) == ["r"]


def test_a_missing_batch_makes_holds_uncertain_and_asks_for_a_resync(partition: Partition) -> None:
    partition.begin("i")
    begun_at = partition.fold.view.log.sequence
    partition.sidecar("i", 1, stored([A], [8]))
    for sequence in (3, 4):
        folded = partition.sidecar("i", sequence, stored([B], [8]))
        assert folded.dropped == "jump"
        assert folded.wanted == (("t", "m", "r", resync("i", begun_at)),)
    assert partition.holders(B) == []
    partition.sidecar("i", 2, Alive())
    partition.wait(1800)
    assert partition.holders(A) == []


def test_the_first_batch_may_have_any_sequence(partition: Partition) -> None:
    partition.begin("i", sequence=7)
    assert partition.sidecar("i", 8).dropped is None


def test_an_incarnation_without_a_begin_in_reach_is_asked_to_resync(partition: Partition) -> None:
    folded = partition.sidecar("i", 5, stored([A], [8]))
    assert (folded.dropped, folded.wanted) == ("unknown", (("t", "m", "r", resync("i")),))
    assert partition.sidecar("", 0, Begin()).dropped == "no_incarnation"
    assert partition.row is None


# ---------------------------------------------------------------------------------- incarnations


def test_the_last_begin_is_current_and_earlier_incarnations_are_told(partition: Partition) -> None:
    partition.begin("old")
    partition.sidecar("old", 1, stored([A], [8]))
    partition.begin("new")
    begun_at = partition.fold.view.log.sequence
    assert partition.holders(A) == []
    folded = partition.sidecar("old", 2, stored([B], [8]))
    assert folded.dropped == "fenced"
    assert folded.wanted == (("t", "m", "r", ResyncRequest("fenced", Incarnation("old"), begun_at)),)
    assert partition.holders(B) == []
    assert partition.row is not None
    assert (partition.row.incarnation, partition.row.begun_at) == ("new", begun_at)


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [("e1", "e1", True), ("e1", "e2", False), ("", "", False), ("e1", "", False)],
)
def test_holds_stay_as_uncertain_only_over_a_begin_of_the_same_engine(
    partition: Partition, before: str, after: str, stays: bool
) -> None:
    partition.begin("old", engine=before)
    partition.sidecar("old", 1, stored([A], [8]), Alive())
    partition.begin("new", engine=after)
    assert partition.holders(A) == (["r"] if stays else [])
    partition.sidecar("new", 1, Alive(), Complete())
    assert partition.holders(A) == []


def test_what_a_grpc_producer_reported_goes_with_the_replicas_begin(partition: Partition) -> None:
    partition.log.report("r", stored([A], [8]))
    partition.step()
    partition.begin("i")
    assert partition.holders(A) == []


def test_statistics_stay_over_a_begin(partition: Partition) -> None:
    partition.begin("old")
    partition.sidecar("old", 1, Stats(hit_rate=0.5))
    partition.begin("new")
    assert partition.fold.view.stats(SCOPE.tenant, SCOPE.model)[ReplicaId("r")].hit_rate == 0.5


# ------------------------------------------------------------------------------- residency and age


def test_certain_holds_stay_young_while_their_replica_is_alive(partition: Partition) -> None:
    partition.begin("i")
    partition.sidecar("i", 1, stored([A], [8]))
    partition.wait(1000)
    partition.sidecar("i", 2, Alive())
    partition.wait(1000)
    assert partition.holders(A) == ["r"]
    partition.wait(800)
    assert partition.holders(A) == []


def test_after_a_gap_holds_age_until_they_are_stored_again(partition: Partition) -> None:
    partition.begin("i")
    partition.sidecar("i", 1, stored([A, B], [8, 16]), Gap(3), stored([B], [16]))
    partition.wait(1000)
    partition.sidecar("i", 2, Alive())
    partition.wait(1000)
    assert (partition.holders(A), partition.holders(B)) == ([], ["r"])


def test_a_complete_resync_drops_what_it_did_not_restate(partition: Partition) -> None:
    partition.begin("i", engine="e")
    partition.sidecar("i", 1, stored([A, B], [8, 16]))
    partition.begin("j", engine="e")
    partition.sidecar("j", 1, stored([B], [16]), Complete())
    assert (partition.holders(A), partition.holders(B)) == ([], ["r"])


def test_a_sidecar_states_ages_and_never_times(partition: Partition) -> None:
    partition.begin("i")
    seen_us = partition.fold.view.time_us - 60 * SECOND_US
    partition.sidecar("i", 1, stored([A], [8], timestamp_us=12345), age_ms=60_000)
    hits = partition.fold.view.exact(SCOPE, AdapterId(""), A, seen_us, TTL_US)
    assert [hit.last_seen_us for hit in hits] == [seen_us]


# ------------------------------------------------------------------------------------------ gone


@pytest.mark.parametrize("replica", ["r", "r@dp0", "r@dp12"])
def test_a_deleted_pod_takes_its_ranks_with_it_for_good(partition: Partition, replica: str) -> None:
    log = partition.log
    log.sidecar(replica, "i", 0, Begin("uid"))
    log.sidecar(replica, "i", 1, stored([A], [8]), Stats())
    log.control("c", Gone(TenantId("t"), ReplicaId("r"), "uid"))
    partition.step()
    assert (partition.holders(A), dict(partition.fold.view.rows)) == ([], {})
    log.sidecar(replica, "i", 2, stored([A], [8]))
    assert partition.step().dropped == "gone"
    log.sidecar(replica, "late", 0, Begin("uid"))
    assert partition.step().dropped == "gone"
    log.sidecar(replica, "next", 0, Begin("other uid"), stored([B], [8]))
    log.control("c", Gone(TenantId("t"), ReplicaId("r"), "uid"))
    partition.step()
    assert partition.holders(B) == [replica]


@pytest.mark.parametrize(
    ("tenant", "replica", "uid"),
    [("u", "r", "uid"), ("t", "r2", "uid"), ("t", "r", "other"), ("t", "r", ""), ("t", "r@dp1", "uid")],
)
def test_only_the_deleted_pod_goes(partition: Partition, tenant: str, replica: str, uid: str) -> None:
    partition.begin("i", uid="uid")
    partition.sidecar("i", 1, stored([A], [8]))
    partition.log.control("c", Gone(TenantId(tenant), ReplicaId(replica), uid))
    partition.step()
    assert partition.holders(A) == ["r"]


@pytest.mark.parametrize("replica", ["rx", "r@dp", "r@dpx", "r@dp1x", "x@dp1"])
def test_a_name_that_only_looks_like_a_rank_is_none(partition: Partition, replica: str) -> None:
    partition.log.sidecar(replica, "i", 0, Begin("uid"), stored([A], [8]))
    partition.log.control("c", Gone(TenantId("t"), ReplicaId("r"), "uid"))
    partition.step()
    assert partition.holders(A) == [replica]


def test_a_deleted_pod_is_forgotten_after_ten_minutes(partition: Partition) -> None:
    partition.log.control("c", Gone(TenantId("t"), ReplicaId("r"), "uid"))
    partition.wait(599)
    assert partition.begin("i", uid="uid").dropped == "gone"
    partition.wait(1)
    assert partition.begin("i", uid="uid").dropped is None


# ------------------------------------------------------------------------------------- ownership


def test_the_last_claims_owner_alone_is_heard(partition: Partition) -> None:
    stale_epoch = partition.log.owner_epoch
    time_us = partition.fold.view.time_us
    partition.log.claim("other", "epoch")
    partition.log.control("o", Tick(partition.log.owner, stale_epoch, time_us + SECOND_US))
    folded = partition.step()
    assert (folded.outdated, partition.fold.view.time_us) == (1, time_us)
    partition.log.tick(5)
    partition.step()
    assert partition.fold.view.time_us == time_us + 2 * SECOND_US
    assert partition.fold.view.owner == "other"


def test_a_claim_of_another_log_epoch_empties_the_partition(partition: Partition) -> None:
    partition.begin("i", uid="uid")
    partition.sidecar("i", 1, stored([A], [8]), Stats())
    partition.log.apply_policy([TenantPolicy(TenantId("t"), 1)])
    partition.log.control("c", Gone(TenantId("t"), ReplicaId("x"), "gone uid"))
    partition.log.claim("owner", "another epoch")
    partition.step()
    view = partition.fold.view
    assert (view.entries, view.digest, view.time_us, dict(view.rows)) == (0, 0, 0, {})
    assert (partition.fold.policy.revision, partition.fold.gone_uids) == (0, {})
    assert partition.sidecar("i", 2).dropped == "unknown"
    partition.log.tick()
    assert partition.begin("j", uid="gone uid").dropped is None


def test_two_claims_in_one_message_begin_anew_whether_or_not_the_log_had_one_before() -> None:
    fold, log = Fold(1 << 8), LogWriter()
    log.report("r", stored([A], [8]))
    claims = [Claim(OwnerId("void"), LogEpoch(epoch)) for epoch in ("first", "anew")]
    log.control("o", *claims)
    for message in log.messages:
        fold.fold(message)
    assert (fold.view.entries, fold.view.digest, fold.view.log_epoch) == (0, 0, "anew")


def test_a_claim_of_the_same_log_epoch_and_a_logs_first_claim_leave_the_state() -> None:
    fold, log = Fold(1 << 8), LogWriter()
    log.report("r", stored([A], [8]))
    log.claim("one")
    log.claim("two")
    for message in log.messages:
        fold.fold(message)
    assert (fold.view.entries, fold.view.log_epoch, fold.view.owner) == (1, "epoch", "two")


# ---------------------------------------------------------------------------------------- senders


@pytest.mark.rule("IDX-187", "IDX-191")
def test_the_reserved_tenant_is_reported_by_routers_only(partition: Partition) -> None:
    partition.log.sidecar("r", "i", 0, Begin(), stored([A], [8]), tenant=PROBE_TENANT)
    assert partition.step().dropped == "reserved"
    partition.log.report("r", stored([A], [8]), tenant=PROBE_TENANT)
    assert partition.step().dropped is None
    assert (partition.fold.view.entries, partition.fold.view.is_empty()) == (0, True)


@pytest.mark.parametrize("record", [Begin(), Gap(), Complete(), Alive()])
def test_a_router_does_not_speak_as_a_sidecar(partition: Partition, record: AnyRecord) -> None:
    partition.log.report("r", stored([A], [8]), record)
    assert partition.step().misplaced == 1
    assert partition.row is not None
    assert (partition.row.incarnation, partition.row.alive_us) == ("", 0)
    assert partition.holders(A) == ["r"]


@pytest.mark.parametrize(
    ("role", "record"),
    [
        ("o", Gone(TenantId("t"), ReplicaId("r"), "uid")),
        ("o", Credit()),
        ("c", Tick(OwnerId("owner"), 1, 0)),
        ("r", Claim(OwnerId("x"), LogEpoch("y"))),
        ("r", stored([A], [8])),
    ],
)
def test_a_record_from_the_wrong_sender_is_left_out(
    partition: Partition, role: Literal["o", "c", "r"], record: AnyRecord
) -> None:
    digest = partition.fold.view.digest
    partition.log.control(role, record)
    assert partition.step().misplaced == 1
    assert (partition.fold.view.digest, partition.fold.view.owner) == (digest, "owner")


def test_an_unreadable_message_moves_the_position_alone(partition: Partition) -> None:
    digest = partition.fold.view.digest
    message = partition.log.append(partition.log.messages[0].sender, None)
    assert partition.step().dropped == "undecodable"
    assert (partition.fold.view.log, partition.fold.view.digest) == (message.position, digest)


@pytest.mark.parametrize(
    "record",
    [
        stored([A], [8, 16]),
        Stored(HashScheme("vllm"), AdapterId(""), 1, 3, b"12345678", b"\0\0\0\0"),
        Stored(HashScheme("vllm"), AdapterId(""), 1, 8, A, b"\0\0\0\0\0"),
        Stored(HashScheme("vllm"), AdapterId(""), 1, -8, A, b"\0\0\0\0"),
    ],
)
def test_a_malformed_record_is_left_out_of_its_batch(partition: Partition, record: Stored) -> None:
    partition.log.report("r", stored([A], [8]), record, stored([C], [8]))
    assert partition.step().malformed == 1
    assert (partition.holders(A), partition.holders(C)) == (["r"], ["r"])


# ------------------------------------------------------------------------------------------ rows


@pytest.mark.rule("IDX-48", "IDX-149")
def test_statistics_live_by_their_liveness(partition: Partition) -> None:
    partition.log.report("r", Stats(hit_rate=0.5))
    partition.wait(1799)
    partition.log.report("r", Event(3))
    partition.wait(1799)
    assert len(partition.fold.view.stats(SCOPE.tenant, SCOPE.model)) == 1
    partition.wait(1)
    assert dict(partition.fold.view.rows) == {}


def test_a_row_stays_while_its_replica_holds_anything_or_is_heard(partition: Partition) -> None:
    partition.begin("i")
    partition.sidecar("i", 1, stored([A], [8]))
    partition.wait(1790)
    partition.sidecar("i", 2, Alive())
    partition.wait(1790)
    assert partition.sidecar("i", 3).dropped is None
    partition.wait(1799)
    assert len(partition.fold.view.rows) == 1
    partition.wait(1)
    assert dict(partition.fold.view.rows) == {}
    assert partition.sidecar("i", 4).dropped == "unknown"


def test_a_clear_takes_holds_and_statistics_but_not_the_incarnation(partition: Partition) -> None:
    partition.begin("i")
    partition.sidecar("i", 1, stored([A], [8]), Stats(), Cleared())
    assert partition.row is not None
    assert (partition.row.incarnation, partition.row.stats, partition.holders(A)) == ("i", None, [])


def test_names_that_come_and_go_leave_nothing_behind(partition: Partition) -> None:
    for number in range(300):
        partition.log.sidecar(f"pod-{number}", "i", 0, Begin(f"uid-{number}"), stored([A], [8]), Stats())
        partition.log.control("c", Gone(TenantId("t"), ReplicaId(f"pod-{number}"), f"uid-{number}"))
    partition.wait(600)
    holders = partition.fold.view.holders
    names = (holders.tenants, holders.models, holders.domains, holders.keyspaces, holders.replicas)
    assert [len(known) for known in (*names, holders.by_number)] == [0] * 6
    assert (dict(partition.fold.lives), partition.fold.gone_uids) == ({}, {})
    assert len(holders.replica_ids) < 3


# ----------------------------------------------------------------------------------- time begins


def test_every_time_before_the_first_tick_becomes_that_tick() -> None:
    fold, log = Fold(1 << 8), LogWriter()
    log.claim()
    log.sidecar("r", "i", 0, Begin(), stored([A], [8]), Alive(), age_ms=5000)
    log.report("s", stored([A], [8], timestamp_us=7), Stats(timestamp_us=7))
    log.tick()
    for message in log.messages:
        fold.fold(message)
    time_us = fold.view.time_us
    hits = fold.view.exact(SCOPE, AdapterId(""), A, time_us, TTL_US)
    assert [hit.last_seen_us for hit in hits] == [time_us, time_us]
    rows = {row.name.replica: row for row in fold.view.rows.values()}
    assert [rows[ReplicaId(name)].heard_us for name in "rs"] == [time_us, time_us]
    stats = rows[ReplicaId("s")].stats
    assert stats is not None
    assert (stats.reported_us, stats.live_us) == (time_us, time_us)


def test_a_batch_without_records_is_heard(partition: Partition) -> None:
    partition.begin("i")
    partition.log.wait(1.5)
    partition.sidecar("i", 1)
    assert partition.row is not None
    assert partition.row.heard_us == partition.fold.view.time_us + 1_500_000
