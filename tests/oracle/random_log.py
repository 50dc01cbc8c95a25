"""Random logs and questions about them: few names, many mistakes.

Names are drawn from tiny alphabets so that keys meet, across replicas, schemes, adapters and widths.
Senders mostly behave; often enough they repeat, jump, come late, come from a dead process or lie about
the time, because the fold has to be right about those.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from inferencecache.core.index.fold import LogMessage
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
from inferencecache.schemas.policy import ResolvedPolicy
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import (
    Alive,
    AnyRecord,
    Batch,
    Begin,
    Budget,
    Claim,
    Cleared,
    Complete,
    Credit,
    CreditedHolds,
    DecodedBatch,
    Event,
    Evicted,
    Gap,
    Gone,
    PolicyApplied,
    Stats,
    Stored,
    TenantPolicy,
    TenantQuota,
    Tick,
)
from inferencecache.schemas.senders import ControlSender, ReplicaSender, Sender
from tests.oracle.keys import key_of
from tests.oracle.logs import START_US
from tests.oracle.routing import Question

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3600 * SECOND_US
TENANTS: Final = (*["t"] * 9, "u", "", PROBE_TENANT)
MODELS: Final = (*["m"] * 8, "n", "")
SCHEMES: Final = ("vllm", "vllm", "sglang")
ADAPTERS: Final = ("", "", "", "", "", "a", "b")
REPLICAS: Final = ("r1", "r2", "r2@dp0", "r2@dp1", "r10", "")
HASHES: Final = {
    0: (b"",),
    1: (b"a", b"b", b"\x00"),
    2: (b"ab", b"a\x00", b"b1", b"b2", b"b3"),
    7: (b"abcdefg", b"\x00" * 7),
    8: (b"abcdefg\x07", b"\x00" * 8, b"\xff" * 8, b"block-01", b"block-02", b"block-03", b"block-04"),
    9: (b"abcdefg\x07\x00", b"block-001", b"block-002"),
    32: (b"\x00" * 32, b"x" * 32, b"y" * 32),
}
MANY: Final = tuple(number.to_bytes(8, "big") for number in range(0, 2**64, 2**64 // 600))
COUNTS: Final = (16, 64, 64, 64, 128, 128, 512, 1, 0, -1, 2**31 - 1, -(2**31))
HUGE: Final = (2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
TIERS: Final = (0, 1, 1, 2, 3, 4, 99, -1, 2**31 - 1)
RATES: Final = (0.0, 0.1, 0.5, 0.8, 1.0, 1.5, -0.5, float("nan"), float("inf"), float("-inf"))
UIDS: Final = ("", "uid-1", "uid-2", "uid-3")
ENGINES: Final = ("", "engine-1", "engine-2")


@dataclass
class _Producer:
    incarnation: str = ""
    sequence: int = 0
    past: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Mix:
    """What may occur; each switch leaves one kind of record or sender out."""

    begins: bool = True
    grpc: bool = True
    evictions: bool = True
    """Policies, quotas, caps and credits, and with them all that is evicted for room."""
    epochs: bool = True
    departures: bool = True
    wild_clocks: bool = True
    extremes: bool = True
    """Numbers that no field of the index has room for."""
    wide: bool = False
    """Thousands of keys instead of dozens."""


ALL: Final = Mix()


class RandomLog:
    """Draws the next message of one partition's log, or a question to ask of what was folded."""

    def __init__(self, random: Random, mix: Mix = Mix()) -> None:
        self.random = random
        self.mix = mix
        self.sequence = 0
        self.stamp_us = START_US
        self.owner = OwnerId("")
        self.owner_epoch = 0
        self.epoch = 1
        self.claims = 0
        self.incarnations = 0
        self.producers: dict[tuple[str, str, str], _Producer] = {}
        self.scale = 50 if mix.wide else 1
        self.hashes = HASHES | {8: HASHES[8] + MANY} if mix.wide else HASHES

    # ------------------------------------------------------------------ messages

    def message(self) -> LogMessage:
        """The next message; the first two are a claim and a tick more often than not."""
        if self.sequence < 2 and self.random.random() < 0.8:
            kind = ("claim", "tick")[self.sequence]
        else:
            kinds = ["sidecar"] * 60 + ["tick"] * 10 + ["noise"] + ["claim"] * self._one_in(2)
            kinds += ["grpc"] * 20 * self.mix.grpc
            kinds += ["policy", "budget", "credit"] * self.mix.evictions
            kinds += ["gone"] * self.mix.departures
            kind = self.random.choice(kinds)
        self.stamp_us += self.random.choice((0, 0, 1, 999, 20_000, 20_000, SECOND_US, 3 * SECOND_US))
        sender, batch = getattr(self, f"_{kind}")()
        self.sequence += 1
        stamp_us = self.stamp_us
        if self.mix.wild_clocks and self._one_in(30):
            stamp_us += self.random.choice((-HOUR_US, HOUR_US, -SECOND_US))
        stamp_ns = stamp_us * 1000 + self.random.choice((0, 0, 1, 500, 999))
        position = Position(self.sequence, stamp_ns, START_US * 1000)
        return LogMessage(position, sender, None if batch is None else DecodedBatch(batch))

    def _one_in(self, times: int) -> bool:
        return self.random.randrange(times) == 0

    def _huge(self, usual: Sequence[int]) -> int:
        """A usual number, now and then a huge one, of either sign."""
        if self.mix.extremes and self._one_in(30):
            huge = self.random.choice(HUGE)
            return max(-huge, -(2**63)) if self._one_in(2) else huge
        return self.random.choice(usual)

    def _replica(self, channel: str) -> ReplicaSender:
        tenant = TenantId(self.random.choice(TENANTS))
        model = ModelId(self.random.choice(MODELS))
        replica = ReplicaId(self.random.choice(REPLICAS))
        return ReplicaSender(tenant, model, replica, "e" if channel == "e" else "g")

    def _sidecar(self) -> tuple[Sender, Batch]:
        sender = self._replica("e")
        producer = self.producers.setdefault((sender.tenant, sender.model, sender.replica), _Producer())
        if self.mix.begins and (producer.incarnation == "" or self._one_in(50)):
            return sender, self._begin(producer)
        sequence = producer.sequence + 1
        incarnation = producer.incarnation
        slip = self.random.randrange(40)
        if slip == 0:
            sequence += self.random.choice((1, 5, 2**40))
        elif slip == 1:
            sequence = self.random.choice((0, -1, producer.sequence, producer.sequence - 1))
        elif slip == 2:
            incarnation = self.random.choice([*producer.past, "", "stranger"])
        else:
            producer.sequence = sequence
        records = tuple(self._record() for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))))
        return sender, Batch(Incarnation(incarnation), sequence, self._age_ms(), records)

    def _begin(self, producer: _Producer) -> Batch:
        if producer.incarnation and self._one_in(4):
            incarnation = producer.incarnation
        else:
            self.incarnations += 1
            incarnation = f"life-{self.incarnations}"
            producer.past.append(producer.incarnation)
            producer.incarnation, producer.sequence = incarnation, self.random.choice((0, 1, 7))
        scheme = HashScheme(self.random.choice(("", *SCHEMES)))
        begin = Begin(self.random.choice(UIDS), self.random.choice(ENGINES), scheme, 16)
        more = (self._record(),) if self._one_in(3) else ()
        return Batch(Incarnation(incarnation), producer.sequence, self._age_ms(), (begin, *more))

    def _age_ms(self) -> int:
        return self._huge((0, 0, 0, 0, 0, 5, 20, 1500, 10_000, 3_600_000))

    def _grpc(self) -> tuple[Sender, Batch]:
        kinds = (self._stored, self._stored, self._stored, self._evicted, self._stats, self._event, Cleared)
        draws = self.random.choice((0, 1, 1, 2, 3))
        records = tuple(self._timed(self.random.choice(kinds)()) for _ in range(draws))
        return self._replica("g"), Batch(records=records)

    def _timed(self, record: AnyRecord) -> AnyRecord:
        timestamp_us = self.random.choice(
            (
                *(0, 0, 0, 0, self.stamp_us),
                self.stamp_us - self.random.choice((1, SECOND_US, 60 * SECOND_US, HOUR_US)),
                self.stamp_us + self.random.choice((1, SECOND_US, 5 * SECOND_US, 6 * SECOND_US, HOUR_US)),
                self._huge((-1, 1, -HOUR_US)),
            )
        )
        return msgspec.structs.replace(record, timestamp_us=timestamp_us)

    def _claim(self) -> tuple[Sender, Batch]:
        if self.mix.epochs and self.claims and self._one_in(4):
            self.epoch += 1
        if self.claims == 0 or self._one_in(2):
            self.claims += 1
            self.owner = OwnerId(f"owner-{self.claims}")
        self.owner_epoch = self.sequence + 1
        return ControlSender("o"), Batch(records=(Claim(self.owner, LogEpoch(f"epoch-{self.epoch}")),))

    def _by_owner(self) -> tuple[OwnerId, int]:
        if self._one_in(12):
            return self.random.choice(
                ((OwnerId("stale"), self.owner_epoch), (self.owner, self.owner_epoch - 1), (OwnerId(""), 0))
            )
        return self.owner, self.owner_epoch

    def _tick(self) -> tuple[Sender, Batch]:
        wall_us = self.stamp_us
        if self.mix.wild_clocks and self._one_in(6):
            wall_us += self.random.choice((-HOUR_US, HOUR_US, SECOND_US, -SECOND_US, -1))
        self.stamp_us += self.random.choice((0, SECOND_US))
        tick = Tick(*self._by_owner(), self._huge((wall_us,)), self._huge((1, 1, 2, 3, 60, 0, -1)))
        return ControlSender("o"), Batch(records=(tick,))

    def _policy(self) -> tuple[Sender, Batch]:
        policies = tuple(
            TenantPolicy(
                TenantId(tenant),
                self._huge((0, 0, 2 * SECOND_US, 10 * SECOND_US, 60 * SECOND_US, -1)),
                self._one_in(2),
            )
            for tenant in ("t", "u", "", PROBE_TENANT)
            if self._one_in(2)
        )
        applied = PolicyApplied(*self._by_owner(), self.sequence + 1, policies, self._quotas())
        return ControlSender("o"), Batch(records=(applied,))

    def _quotas(self) -> tuple[TenantQuota, ...]:
        usual = [keys * self.scale for keys in (0, 3, 6, 20, 20, 40, 40, 40, -1)]
        return tuple(
            TenantQuota(TenantId(tenant), self._huge(usual))
            for tenant in ("t", "u", "", PROBE_TENANT)
            if self._one_in(3)
        )

    def _budget(self) -> tuple[Sender, Batch]:
        entries = self._huge([entries * self.scale for entries in (-1, -1, 0, 8, 20, 40, 40, 60)])
        division = self.random.choice((0, 0, 0, 1, 2))
        budget = Budget(*self._by_owner(), entries, self._quotas(), division)
        return ControlSender("o"), Batch(records=(budget,))

    def _credit(self) -> tuple[Sender, Batch]:
        holds = []
        for _ in range(self.random.choice((1, 2, 4))):
            sender = self._replica("e")
            hashes = self._hashes()
            keys = [key_of(hash_) for hash_ in hashes]
            accesses = [self.random.choice((1, 1, 3, 2**32 - 1)) for _ in keys]
            credited = CreditedHolds(
                sender.tenant,
                sender.model,
                HashScheme(self.random.choice(SCHEMES)),
                AdapterId(self.random.choice(ADAPTERS)),
                keys[0][0] if keys else 8,
                sender.replica,
                struct.pack(f"<{len(keys)}Q", *(key for _, key in keys)),
                struct.pack(f"<{len(keys)}I", *accesses),
            )
            holds.append(credited)
        return ControlSender("r"), Batch(records=(Credit(tuple(holds)),))

    def _gone(self) -> tuple[Sender, Batch]:
        tenant = TenantId(self.random.choice(TENANTS))
        gone = Gone(tenant, ReplicaId(self.random.choice(REPLICAS)), self.random.choice(UIDS))
        return ControlSender("c"), Batch(records=(gone,))

    def _noise(self) -> tuple[Sender, Batch | None]:
        """What no honest sender sends: bytes that are no batch, records of other roles, no records."""
        controls: tuple[Sender, ...] = (ControlSender("o"), ControlSender("c"), ControlSender("r"))
        sender = self.random.choice((self._replica("e"), self._replica("g"), *controls))
        claim = Claim(OwnerId("thief"), LogEpoch("stolen"))
        if isinstance(sender, ControlSender):
            records: tuple[AnyRecord, ...] = (self._stored(), Alive(), Gap(1), Cleared())
            if sender.role != "o":
                records += (claim,)
        else:
            gone = Gone(sender.tenant, sender.replica, "uid-1")
            records = (claim, gone, Credit(), Budget(self.owner, self.owner_epoch, 0))
        return sender, self.random.choice((None, Batch(), Batch(records=records)))

    # ------------------------------------------------------------------ records

    def _record(self) -> AnyRecord:
        kinds = [self._stored] * 20 + [self._evicted] * 3 + [self._stats] * 2 + [Alive] * 3
        draw = self.random.choice([*kinds, Cleared, self._gap, Complete, self._event])
        record: AnyRecord = draw()
        return record

    def _gap(self) -> Gap:
        return Gap(self.random.choice((0, 1, 5)))

    def _hashes(self) -> list[bytes]:
        alphabet = self.hashes[self.random.choice((0, 1, 2, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 32))]
        if self._one_in(2):
            most = self.random.randint(1, min(300, len(alphabet)))
            start = self.random.choice((0, 0, self.random.randrange(len(alphabet))))
            return list(alphabet[start : start + most])
        return [self.random.choice(alphabet) for _ in range(self.random.choice((0, 1, 1, 2, 4)))]

    def _stored(self) -> Stored:
        hashes = self._hashes()
        counts = [self.random.choice(COUNTS) for _ in hashes]
        width, packed = len(hashes[0]) if hashes else 8, struct.pack(f"<{len(counts)}i", *counts)
        if self._one_in(25):
            width = self.random.choice((0, 3, -1, width + 1))
        if self._one_in(25):
            packed = self.random.choice((b"", packed[:-1], packed + b"\0\0\0\0"))
        scheme = "" if self._one_in(25) else self.random.choice(SCHEMES)
        adapter, tier = self.random.choice(ADAPTERS), self._huge(TIERS)
        return Stored(HashScheme(scheme), AdapterId(adapter), tier, width, b"".join(hashes), packed)

    def _evicted(self) -> Evicted:
        hashes = self._hashes()
        width = len(hashes[0]) if hashes else 8
        if self._one_in(25):
            width = self.random.choice((0, 3, -1))
        count = self.random.choice((len(hashes), len(hashes), 0, -1, 2))
        adapter = self.random.choice(("", *ADAPTERS))
        return Evicted(AdapterId(adapter), width, b"".join(hashes), count)

    def _stats(self) -> Stats:
        rate = self.random.choice
        return Stats(
            cache_memory_bytes=self._huge((0, 5, 2**40)),
            hit_rate=rate(RATES),
            pressure=rate(RATES),
            t2_hit_tokens=rate((0, 3)),
            t2_query_tokens=rate((0, 4)),
            requests_running=rate((0, 2)),
            requests_waiting=rate((0, 9)),
            kv_usage=rate(RATES),
        )

    def _event(self) -> Event:
        hash_ = self.random.choice(HASHES[2])
        return Event(self.random.choice((0, 1, 3, 3, 3, 77, -1)), hash_, AdapterId(""))

    # ------------------------------------------------------------------ questions

    def question(self) -> Question:
        """A lookup, well formed more often than not."""
        one = self.random.choice
        question = Question(
            tenant=one((*TENANTS, "other")),
            model=one((*MODELS, "other")),
            scheme=one(("sglang", "other", "")) if self._one_in(5) else "vllm",
            adapter=one((*ADAPTERS, "other")),
            ttft_ms=one((0, 50, 199, 200, -5)),
        )
        if self._one_in(3):
            prefix_hash, tokens = one(one(list(self.hashes.values()))), one((0, 5, 64, 2000))
            question = msgspec.structs.replace(question, prefix_hash=prefix_hash, prefix_token_count=tokens)
        elif self._one_in(12):
            return msgspec.structs.replace(question, token_ids=tuple(range(one((0, 5, 16, 40)))))
        if question.prefix_hash and not self._one_in(5):
            return question
        chain = self._chain()
        counts = tuple(one(COUNTS) for _ in chain) if self._one_in(3) else (one((16, 64)),) * len(chain)
        if self._one_in(15):
            counts = counts[:-1]
        return msgspec.structs.replace(question, block_hashes=chain, block_token_counts=counts)

    def _chain(self) -> tuple[bytes, ...]:
        chain = [hash_ for _ in range(self.random.choice((1, 1, 2, 3))) for hash_ in self._hashes()]
        return tuple(chain)

    def policy(self, tenant: str) -> ResolvedPolicy | None:
        """A policy to route by, or none."""
        one = self.random.choice
        if self._one_in(2):
            return None
        flag: Sequence[bool | None] = (None, True, False)
        return ResolvedPolicy(
            namespace=tenant,
            eviction_ttl_ms=one((0, 0, 0, 2000, 10_000, -5)),
            minimum_prefix_tokens=one((0, 0, 64, -1)),
            minimum_matched_tokens=one((0, 0, 16, 64, -1)),
            routing_floor_score=one((None, 0.0, 0.1, 10.0, -1.0)),
            affinity_routing=one(flag),
            enable_chain_matching=one((None, None, True, True, False)),
            require_chain=one((None, None, None, False, False, True)),
            enable_tenant_hot=one(flag),
        )

    def later_us(self) -> int:
        """How long after the view's own time a lookup comes."""
        return self.random.choice((0, 0, 0, 0, 1, 1_000_000, 2_000_000, 10_000_000, HOUR_US, -1_000_000))
