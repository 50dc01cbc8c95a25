"""What became of a prefix on a replica: who asks that misses a hit.

A prefix is a chain of blocks, or one key. Its history on a replica is the moments at which one of these keys
came, left or changed there, each with the message that did it. What others hold of the same keys is told
beside it, since a hash under another adapter or scheme is the usual reason for "never seen".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Literal

import msgspec

from inferencecache.core.index.fold import Folded, LogMessage
from inferencecache.core.index.keys import Keys, MalformedHashesError, key_array, key_of
from inferencecache.core.index.observing import Cause, Doubt
from inferencecache.core.index.reading import Scope
from inferencecache.core.index.view import View
from inferencecache.schemas.deltas import HolderName
from inferencecache.schemas.ids import AdapterId, HashScheme
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import Evicted, Stored
from inferencecache.schemas.senders import ReplicaSender

What = Literal[
    "in_base", "stored", "refreshed", "moved", "uncertain", "not_counted", "emptied", Cause,
]  # fmt: skip
"""`in_base`: held where the replay begins; `moved`: stored again in another tier; `not_counted`: its batch
was dropped; `emptied`: the partition began a new log epoch.
"""
_EVER_US: Final = 2**63 - 1


class Moment(msgspec.Struct, frozen=True, rename="camel"):
    """Something happened at a message, whose JetStream timestamp is `time_ns`.

    `why` says more where there is more to say: why a batch did not count, or why a hold became uncertain.
    """

    sequence: int
    time_ns: int
    what: What
    tier: int = 0
    why: str = ""


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """Where a history ends. What is `stale` has reached its time to live: lookups pass it over, a sweep takes
    it away. `age_us` is the age that both count.
    """

    held: bool = False
    stale: bool = False
    uncertain: bool = False
    tier: int = 0
    age_us: int = 0


class Block(msgspec.Struct, frozen=True, rename="camel"):
    """Blocks `first` to `last` of the chain, from 1, which have one history; `hash` is the first's."""

    first: int
    last: int
    hash: str
    moments: tuple[Moment, ...]
    standing: Standing


class Elsewhere(msgspec.Struct, frozen=True, rename="camel"):
    """Somebody else has been heard of with some of the keys; `blocks` are how many are held there now."""

    replica: str
    scheme: str
    adapter: str
    blocks: int
    last: Moment


class History:
    """Observes a fold on behalf of a chain of `hashes` of one replica, named with scheme and adapter."""

    def __init__(self, sender: ReplicaSender, scheme: str, adapter: str, hashes: Sequence[bytes]) -> None:
        self._replica = sender.tenant, sender.model, sender.replica
        self._kind = scheme, adapter
        self._hashes = list(hashes)
        self._watched: dict[int, dict[int, int]] = {}
        for block, hash_ in enumerate(self._hashes):
            width, key = key_of(hash_)
            self._watched.setdefault(width, {}).setdefault(key, block)
        self._moments: list[list[Moment]] = [[] for _ in self._hashes]
        self._held: dict[HolderName, dict[int, int]] = {}
        """Tier by block, of every holder of the model that holds any."""
        self._last: dict[HolderName, Moment] = {}
        self._at = Position()

    # ------------------------------------------------------------------------------ the replay

    def begin(self, view: View) -> None:
        """What is held at the base."""
        self._at = view.log
        for holder in list(view.holders.by_number.values()):
            name = holder.name
            if (name.tenant, name.model) != self._replica[:2]:
                continue
            scope = Scope(name.tenant, name.model, name.scheme)
            for block in self._watched.get(name.width, {}).values():
                for hit in view.exact(scope, name.adapter, self._hashes[block], 0, _EVER_US):
                    if hit.replica == name.replica:
                        self._held.setdefault(name, {})[block] = hit.tier
                        self._tell(name, (block,), "in_base", tier=hit.tier)

    def message_begins(self, message: LogMessage) -> None:
        """What is observed next comes of this message."""
        self._at = message.position

    def message_ends(self, message: LogMessage, folded: Folded) -> None:
        """What a batch said that did not count; a duplicate says nothing new."""
        sender, decoded = message.sender, message.batch
        if folded.dropped in (None, "duplicate") or decoded is None or not isinstance(sender, ReplicaSender):
            return
        if (sender.tenant, sender.model, sender.replica) != self._replica:
            return
        for record in decoded.batch.records:
            if isinstance(record, Stored):
                is_ours = (record.scheme, record.adapter) == self._kind
            else:
                is_ours = isinstance(record, Evicted) and record.adapter in ("", self._kind[1])
            if is_ours and isinstance(record, Stored | Evicted):
                what = "a store" if isinstance(record, Stored) else "an eviction"
                for block in self._of_record(record):
                    self._add(block, "not_counted", why=f"{what}: {folded.dropped}")

    # -------------------------------------------------------------------------------- the fold

    def held(self, holder: HolderName, keys: Keys, tier: int, seen_us: int) -> None:
        """Observed: stored, anew or again."""
        for block in self._among(holder, keys):
            held = self._held.setdefault(holder, {})
            before = held.get(block)
            held[block] = tier
            what: What = "stored" if before is None else "refreshed" if before == tier else "moved"
            self._tell(holder, (block,), what, tier=tier)

    def released(self, holder: HolderName, keys: Keys, cause: Cause) -> None:
        """Observed: these are held no longer."""
        if holder in self._held:
            self._leave(holder, self._among(holder, keys), cause)

    def cleared(self, holder: HolderName, cause: Cause) -> None:
        """Observed: nothing is held any longer."""
        self._leave(holder, list(self._held.get(holder, ())), cause)

    def doubted(self, holder: HolderName, keys: Keys, doubt: Doubt) -> None:
        """Observed: these are uncertain from now on."""
        if holder in self._held:
            self._tell(holder, self._among(holder, keys), "uncertain", why=doubt)

    def emptied(self) -> None:
        """Observed: a log epoch begins."""
        for holder in list(self._held):
            self._leave(holder, list(self._held[holder]), "emptied")

    # ----------------------------------------------------------------------------- the account

    def moments(self, block: int) -> Sequence[Moment]:
        """All moments of a block, counted from 0."""
        return self._moments[block]

    def blocks(self, view: View, now_us: int, ttl_us: int) -> list[Block]:
        """The chain in stretches of blocks with the same history, where the replay stands now."""
        accounts = [
            (tuple(moments), self._standing(view, block, now_us, ttl_us))
            for block, moments in enumerate(self._moments)
        ]
        stretches: list[Block] = []
        for (moments, standing), group in groupby(range(len(accounts)), key=accounts.__getitem__):
            numbers = list(group)
            hash_ = self._hashes[numbers[0]].hex()
            stretches.append(Block(numbers[0] + 1, numbers[-1] + 1, hash_, moments, standing))
        return stretches

    def elsewhere(self) -> list[Elsewhere]:
        """Others of the model that have been heard of with some of the keys."""
        return [
            Elsewhere(name.replica, name.scheme, name.adapter, len(self._held.get(name, ())), last)
            for name, last in sorted(self._last.items(), key=lambda item: msgspec.structs.astuple(item[0]))
        ]

    def _standing(self, view: View, block: int, now_us: int, ttl_us: int) -> Standing:
        tenant, model, replica = self._replica
        scope = Scope(tenant, model, HashScheme(self._kind[0]))
        hash_ = self._hashes[block]
        for hit in view.exact(scope, AdapterId(self._kind[1]), hash_, 0, _EVER_US):
            if hit.replica == replica:
                width, key = key_of(hash_)
                name = HolderName(tenant, model, scope.scheme, AdapterId(self._kind[1]), width, replica)
                holder = view.holders.find(name)
                doubtful = () if holder is None else view.table.uncertain_keys(holder.number).tolist()
                age_us = now_us - hit.last_seen_us
                return Standing(True, age_us >= ttl_us, key in doubtful, hit.tier, age_us)
        return Standing()

    def _leave(self, holder: HolderName, blocks: Iterable[int], what: What) -> None:
        held = self._held.get(holder, {})
        left = [block for block in sorted(blocks) if held.pop(block, None) is not None]
        if not held:
            self._held.pop(holder, None)
        self._tell(holder, left, what)

    def _tell(
        self, holder: HolderName, blocks: Iterable[int], what: What, *, tier: int = 0, why: str = ""
    ) -> None:
        is_ours = (holder.tenant, holder.model, holder.replica) == self._replica
        is_ours = is_ours and (holder.scheme, holder.adapter) == self._kind
        for block in blocks:
            if is_ours:
                self._add(block, what, tier=tier, why=why)
            else:
                self._last[holder] = self._moment(what, tier, why)

    def _add(self, block: int, what: What, *, tier: int = 0, why: str = "") -> None:
        self._moments[block].append(self._moment(what, tier, why))

    def _moment(self, what: What, tier: int, why: str) -> Moment:
        return Moment(self._at.sequence, self._at.time_ns, what, tier, why)

    def _among(self, holder: HolderName, keys: Keys) -> list[int]:
        """Which blocks of the chain are among a holder's keys, in their order."""
        watched = self._watched.get(holder.width)
        if not watched or (holder.tenant, holder.model) != self._replica[:2]:
            return []
        return sorted(watched[key] for key in watched.keys() & keys.tolist())

    def _of_record(self, record: Stored | Evicted) -> Iterator[int]:
        count = len(record.token_counts) // 4 if isinstance(record, Stored) else min(record.count, 1)
        try:
            width, keys = key_array(record.width, record.hashes, count)
        except MalformedHashesError:
            return
        watched = self._watched.get(width, {})
        yield from sorted(watched[key] for key in watched.keys() & keys.tolist())
