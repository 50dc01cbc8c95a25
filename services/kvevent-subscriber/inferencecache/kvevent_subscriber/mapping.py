"""From engine events to reports: which prefixes the replica holds, keyed by what their tokens say.

A store is filtered (medium, cache group, block size), named (adapter), chained onto what is known of
its parent, and remembered; a removal takes away the holder it names and reports what that leaves.
Nothing here does I/O, reads a clock or raises over what an engine sends: events that cannot be used
are counted and, where an operator should know, noted as a warning.

All sources (ranks) of one replica share one mapper, because a key is held as long as any of them
holds it [SUB-022, SUB-100].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from operator import attrgetter
from typing import Final, Literal, NamedTuple

import msgspec

from inferencecache.core.fingerprint import content_hashes, roll, wire_form
from inferencecache.kvevent_subscriber.adapters import AdapterNames
from inferencecache.kvevent_subscriber.blocks import KEY_BYTES, NO_TIER, Block, HeldKeys, TrackedBlocks
from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.events import (
    AllCleared,
    Batch,
    BlockHash,
    Event,
    Malformed,
    Removed,
    Stored,
    Unknown,
)
from inferencecache.kvevent_subscriber.media import (
    NOBODY,
    TIER_OF_PLACE,
    CpuMedium,
    Holder,
    Holders,
    medium_name,
    place_of,
)
from inferencecache.kvevent_subscriber.orphans import Orphans
from inferencecache.kvevent_subscriber.predictions import Predicted, Predictions
from inferencecache.kvevent_subscriber.reports import (
    Cleared,
    Doubted,
    Report,
    Reports,
    Restarted,
)
from inferencecache.schemas.ids import AdapterId
from inferencecache.schemas.records import TIER_T1, TIER_T2

UnknownParent = Literal["hold", "drop", "root"]

MAIN_KINDS: Final = frozenset({None, "full_attention", "mla_attention", "sink_full_attention", "unknown"})
WINDOWED_KINDS: Final = frozenset({"sliding_window", "sliding_window_mla", "chunked_local_attention"})
"""Cache groups that stand for the sequence, and those used only when no such group exists [SUB-071]."""

MIN_AGE_GROUP_S: Final = 1.0
AGE_GROUP_SHARE: Final = 0.1
"""A full state is told in groups of about one age: within a second, or a tenth of the age."""

MAX_TOKEN_COUNT: Final = 2**31 - 1
"""Records count tokens in 32 bits."""

MAX_SHARED_HOLDER_SETS: Final = 1024
"""Sets of holders that blocks share; an engine that invents more pays with memory a block."""


class MappingSettings(msgspec.Struct, frozen=True):
    """What the operator decides about the mapping; names and defaults as the flags [SUB-157..173]."""

    block_size: int = 0
    unknown_parent: UnknownParent = "hold"
    ignore_block_removed: bool = False
    lora_adapter_names: Mapping[int, AdapterId] = {}
    lora_names_from_engine: bool = True
    max_tracked_blocks: int = 100_000
    cpu_medium: CpuMedium = "local"


class StateGroup(NamedTuple):
    """Part of a full state: `reports` were all learned at about `observed_at`."""

    observed_at: float
    reports: list[Report]


class _Start(NamedTuple):
    """Where a chain goes on."""

    prefix: bytes | None
    token_count: int
    opaque: bool
    hash: BlockHash | None = None


_ROOT: Final = _Start(None, 0, False)


class _Lane:
    """What the mapping knows of one source since its reset."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.orphans = Orphans()
        self.reset()

    def reset(self) -> None:
        self.orphans.clear()
        self.group: int | None = None
        self.provisional = False
        self.learned_block_size = 0
        self.plain = True
        self.explicit_tier = False


class Mapper:
    """The blocks of one replica. Times are seconds of any one clock."""

    def __init__(self, settings: MappingSettings, diary: Diary, lanes: int = 1) -> None:
        self._settings = settings
        self._diary = diary
        self._adapters = AdapterNames(settings.lora_adapter_names, settings.lora_names_from_engine, diary)
        self._lanes = tuple(map(_Lane, range(lanes)))
        self._blocks = TrackedBlocks(lanes)
        self._held = HeldKeys()
        self._holder_sets: dict[tuple[Holder, ...], Holders] = {}
        self._predictions = Predictions()
        self._doubts = 0

    @property
    def held_blocks(self) -> int:
        """Blocks of stores that wait for their parent, in the lane where most do."""
        return max(lane.orphans.blocks for lane in self._lanes)

    @property
    def held_tokens(self) -> int:
        """Tokens of stores that wait for their parent, in the lane where they are most."""
        return max(lane.orphans.tokens for lane in self._lanes)

    @property
    def tracked_blocks(self) -> int:
        """Number of remembered hashes."""
        return len(self._blocks)

    def block_size(self, lane: int = 0) -> int:
        """Tokens a block of a source, 0 while not known [SUB-075]."""
        return self._settings.block_size or self._lanes[lane].learned_block_size

    def apply(self, lane: int, batch: Batch, now: float) -> list[Report]:
        """Everything a batch comes to, in order."""
        state, out = self._lanes[lane], Reports()
        self._expire(now, out)
        self._choose_group(state, batch.events, now, out)
        for index, event in enumerate(batch.events, 1):
            match event:
                case Stored():
                    self._diary.count("events", reason="BlockStored")
                    self._store(state, event, now, out)
                case Removed():
                    self._diary.count("events", reason="BlockRemoved")
                    self._remove(state, event, now, out)
                case AllCleared():
                    self._diary.count("events", reason="AllBlocksCleared")
                    self._void(state, Cleared(), out)
                    self._choose_group(state, batch.events[index:], now, out)
                case Unknown():
                    self._diary.count("unknown_events")
                case Malformed():
                    self._diary.count("malformed_events", reason=event.reason)
                    self._diary.warn(
                        f"malformed_events:{event.reason}", "a malformed event was skipped", why=event.reason
                    )
        return out.items

    def restart(self, lane: int) -> list[Report]:
        """The engine process behind a source is another one now [SUB-023, SUB-052]."""
        out = Reports()
        self._void(self._lanes[lane], Restarted(), out)
        return out.items

    def doubt(self, lane: int, missed: int) -> list[Report]:
        """Messages of a source are lost for good: what is known so far is no longer certain."""
        self._doubts += 1
        self._held.clear()
        # What is uncertain ages by itself in the index.
        self._predictions.clear()
        # What waits for a parent may be gone by now: chained later, it would count as certain.
        orphans = self._lanes[lane].orphans
        self._diary.count("orphans_dropped", len(orphans))
        orphans.clear()
        return [Doubted(missed)]

    def tick(self, now: float) -> list[Report]:
        """Time passed."""
        out = Reports()
        self._expire(now, out)
        return out.items

    def wake_at(self) -> float | None:
        """When `tick` has something to report."""
        return self._predictions.expires_at()

    def full_state(self, now: float) -> list[StateGroup]:
        """All that is known, oldest first. What precedes a gap is told before it and so stays uncertain."""
        blocks = [block for block in self._blocks.each() if not block.opaque]
        blocks.sort(key=attrgetter("stored_at"))
        doubted = [block for block in blocks if block.doubts != self._doubts]
        groups = list(self._by_age(doubted, now))
        if groups:
            groups.append(StateGroup(now, [Doubted(0)]))
        groups.extend(self._predicted(now))
        groups.extend(self._by_age([block for block in blocks if block.doubts == self._doubts], now))
        return groups

    # ------------------------------------------------------------------ cache groups

    def _choose_group(self, lane: _Lane, events: Iterable[Event], now: float, out: Reports) -> None:
        """Hybrid models announce a block once a cache group; one group stands for all [SUB-072]."""
        if lane.group is not None and not lane.provisional:
            return
        stores = [
            event
            for event in events
            if type(event) is Stored and place_of(event.medium, event.locality) == "T1"
        ]
        main = [event.group or 0 for event in stores if event.kind in MAIN_KINDS]
        windowed = [event.group or 0 for event in stores if event.kind in WINDOWED_KINDS]
        if main:
            if lane.provisional:
                self._withdraw_all(lane, out)
                lane.learned_block_size = 0
            lane.group, lane.provisional = min(main), False
        elif windowed and lane.group is None:
            lane.group, lane.provisional = min(windowed), True
        else:
            return
        for event in list(lane.orphans.release(None)):
            self._store(lane, event, now, out)

    def _is_of_reference_group(self, lane: _Lane, event: Stored) -> bool:
        wanted = WINDOWED_KINDS if lane.provisional else MAIN_KINDS
        return event.kind in wanted and (event.group or 0) == lane.group

    # ------------------------------------------------------------------ stores

    def _store(self, lane: _Lane, event: Stored, now: float, out: Reports) -> None:
        """Store an event and then whatever was held back for want of its blocks."""
        known = self._blocks.lane(lane.index)
        pending = deque([event])
        while pending:
            current = pending.popleft()
            self._store_one(lane, current, now, out)
            if current is not event and all(hash_ in known for hash_ in current.hashes):
                self._diary.count("orphans_chained")
            if not len(lane.orphans):
                break
            for hash_ in current.hashes:
                if hash_ in known:
                    pending.extend(lane.orphans.release(hash_))
        while len(self._blocks) > self._settings.max_tracked_blocks:
            self._diary.count("overflow_dropped")
            self._withdraw(self._blocks.next_to_go(), out)

    def _store_one(self, lane: _Lane, event: Stored, now: float, out: Reports) -> None:
        tier = self._tier_of(event)
        if tier == NO_TIER or not event.hashes:
            return
        if tier == TIER_T1:
            if self._is_of_reference_group(lane, event):
                self._store_t1(lane, event, now, out)
            else:
                self._diary.count("ignored_group")
        elif event.group is not None and lane.group is not None and event.group != lane.group:
            self._diary.count("ignored_group")
        elif not event.tokens:
            self._store_placeholder(lane, event, now, out)
        elif event.group is not None and lane.group is None:
            self._orphan(lane, event, None)
        else:
            self._store_t2(lane, event, now, out)

    def _tier_of(self, event: Stored | Removed) -> int:
        place = place_of(event.medium, event.locality, self._settings.cpu_medium)
        tier = TIER_OF_PLACE.get(place, NO_TIER)
        if tier == NO_TIER:
            self._diary.count("ignored_medium")
            if place == "unknown":
                self._diary.warn_once(
                    "ignored_medium",
                    event.medium,
                    "blocks in an unknown medium are ignored",
                    medium=event.medium,
                )
        return tier

    def _store_t1(self, lane: _Lane, event: Stored, now: float, out: Reports) -> None:
        own_opacity = _own_opacity(event)
        if event.lora_id is not None or event.lora_name is not None or own_opacity is not None:
            lane.plain = False
        if not event.tokens:
            self._warn_of_counts("no_tokens", event)
            return
        adapter = self._adapters.resolve(event.lora_id, event.lora_name)
        if adapter is None:
            return
        size, known_size = event.block_size, self.block_size(lane.index)
        grows = 0 < known_size < size
        if size < known_size or (grows and self._settings.block_size):
            self._warn_of_size(event, known_size)
            return
        if len(event.tokens) // size != len(event.hashes):
            self._warn_of_counts("token_mismatch", event)
            return
        # Whatever is known has the smaller size and goes now, so it cannot be a parent [SUB-077].
        known = {} if grows else self._blocks.lane(lane.index)
        start = _after(known, event.parent)
        if start is None and self._settings.unknown_parent == "root":
            start = _ROOT
        if start is None:
            self._orphan(lane, event, event.parent)
            return
        if grows:
            self._withdraw_all(lane, out)
        lane.learned_block_size = size
        holder = self._holder_of(event, TIER_T1)
        parent, token_count, opaque = start.hash or event.parent, start.token_count, start.opaque
        for index, key in enumerate(_chain(event.tokens, size, start.prefix)):
            hash_ = event.hashes[index]
            token_count = min(token_count + size, MAX_TOKEN_COUNT)
            opaque = opaque or (own_opacity is not None and own_opacity[index])
            wanted = Block(hash_, lane.index, parent, key, token_count, adapter, opaque, now, self._doubts)
            block = self._remember(wanted, out)
            self._renew(block)
            block.stored_at = now
            self._hold(block, holder)
            if opaque:
                self._diary.count("opaque_blocks")
            else:
                out.add(adapter, TIER_T1, key, token_count)
                if self._predictions:
                    self._predictions.confirm(lane.index, adapter, key)
            parent = block.hash

    def _store_placeholder(self, lane: _Lane, event: Stored, now: float, out: Reports) -> None:
        """An offload tier names hashes and nothing else [SUB-084]."""
        known = self._blocks.lane(lane.index)
        holder = self._holder_of(event, TIER_T2)
        for hash_ in event.hashes:
            block = known.get(hash_)
            if block is None:
                self._diary.count("placeholder_unknown")
            else:
                self._hold_t2(block, holder, now, out)

    def _store_t2(self, lane: _Lane, event: Stored, now: float, out: Reports) -> None:
        """Known hashes gain a holder; unknown ones are derived where that is safe [SUB-085, SUB-086]."""
        lane.explicit_tier = True
        known = self._blocks.lane(lane.index)
        holder = self._holder_of(event, TIER_T2)
        chunks: _Chunks | None = None
        previous = _after(known, event.parent)
        for index, hash_ in enumerate(event.hashes):
            block = known.get(hash_)
            if block is None:
                chunks = chunks or self._chunks_of(lane, event)
                if not chunks.keys_each or previous is None:
                    previous = None
                    continue
                wanted = chunks.block(index, hash_, lane.index, previous, now, self._doubts)
                block = self._remember(wanted, out)
                if block.opaque:
                    self._diary.count("opaque_blocks")
            self._hold_t2(block, holder, now, out)
            previous = _start_at(block)
        if chunks is not None and chunks.keys_each and _after(known, event.parent) is None:
            self._orphan(lane, event, event.parent)

    def _chunks_of(self, lane: _Lane, event: Stored) -> _Chunks:
        """What is needed to derive the unknown hashes of a T2 store; without keys when that is not safe."""
        size, known_size = event.block_size, self.block_size(lane.index)
        if len(event.tokens) // size != len(event.hashes):
            self._warn_of_counts("token_mismatch", event)
            return _NO_CHUNKS
        if not known_size or size % known_size:
            self._warn_of_size(event, known_size)
            return _NO_CHUNKS
        adapter = self._adapters.resolve(event.lora_id, event.lora_name)
        if adapter is None:
            return _NO_CHUNKS
        if not lane.plain:
            self._diary.count("foreign_t2_ignored")
            return _NO_CHUNKS
        contents = wire_form(content_hashes(event.tokens, known_size))
        return _Chunks(size // known_size, contents, size, adapter, _own_opacity(event))

    def _remember(self, wanted: Block, out: Reports) -> Block:
        """The block as it is known, if it stands for the same; else `wanted` in its place [SUB-083]."""
        known = self._blocks.lane(wanted.lane).get(wanted.hash)
        if known is not None:
            if (known.keys, known.adapter, known.opaque) == (wanted.keys, wanted.adapter, wanted.opaque):
                self._blocks.touch(known)
                return known
            self._withdraw(known, out)
        self._blocks.add(wanted)
        return wanted

    def _hold_t2(self, block: Block, holder: Holder, now: float, out: Reports) -> None:
        """Add a T2 holder and report what is no warmer than that [SUB-102]."""
        if not block.holders.on_t1:
            self._renew(block)
        self._hold(block, holder)
        if block.holders.on_t1:
            return
        self._blocks.touch(block)
        block.stored_at = now
        if not block.opaque:
            for key, token_count in self._keys_of(block):
                self._predictions.confirm(block.lane, block.adapter, key)
                if self._held.tier(block.adapter, key) == TIER_T2:
                    out.add(block.adapter, TIER_T2, key, token_count)

    def _orphan(self, lane: _Lane, event: Stored, waits_for: BlockHash | None) -> None:
        self._diary.count("orphan_events")
        self._diary.warn_once(
            "orphan_events",
            lane.index,
            "stores whose parent block was never announced are not reported until it is",
            source=lane.index,
        )
        if self._settings.unknown_parent == "hold":
            self._diary.count("orphans_dropped", lane.orphans.hold(event, waits_for))

    # ------------------------------------------------------------------ removals

    def _remove(self, lane: _Lane, event: Removed, now: float, out: Reports) -> None:
        tier = self._tier_of(event)
        if tier == NO_TIER or (
            event.group is not None and lane.group is not None and event.group != lane.group
        ):
            return
        predicts = tier == TIER_T1 and self._settings.ignore_block_removed and not lane.explicit_tier
        known = self._blocks.lane(lane.index)
        evicted: list[tuple[AdapterId, bytes]] = []
        for hash_ in event.hashes:
            was_orphan = len(lane.orphans) > 0 and lane.orphans.remove(event, hash_)
            block = known.get(hash_)
            if block is not None:
                self._release(block, event, now if predicts else None, out, evicted)
            elif not was_orphan:
                self._diary.count("unknown_removed")
        for adapter, key in evicted:
            out.evict(adapter, key)

    def _release(
        self,
        block: Block,
        event: Removed,
        predicted_at: float | None,
        out: Reports,
        evicted: list[tuple[AdapterId, bytes]],
    ) -> None:
        """Take away the holders that a removal names, and report what that leaves [SUB-103, SUB-104]."""
        held = block.holders.each
        kept = tuple(holder for holder in held if not _names(event, holder))
        if len(kept) == len(held):
            return
        for key, token_count, tier in self._lower(block, self._shared(kept)):
            # A copy from before a gap may be gone by now: saying so again would make it certain.
            is_certain = block.doubts == self._doubts
            if tier == NO_TIER and predicted_at is not None:
                out.add(block.adapter, TIER_T2, key, token_count, downgrade=True)
                predicted = Predicted(block.lane, block.adapter, key)
                self._predictions.make(predicted, token_count, predicted_at)
            elif tier == TIER_T2 and is_certain:
                out.add(block.adapter, TIER_T2, key, token_count, downgrade=True)
            else:
                evicted.append((block.adapter, key))

    def _withdraw(self, block: Block, out: Reports) -> None:
        """Forget a block with all its holders."""
        for key, token_count, tier in self._lower(block, NOBODY):
            if tier == NO_TIER:
                out.evict(block.adapter, key)
            else:
                out.add(block.adapter, tier, key, token_count, downgrade=True)

    def _withdraw_all(self, lane: _Lane, out: Reports) -> None:
        for block in list(self._blocks.lane(lane.index).values()):
            self._withdraw(block, out)

    def _lower(self, block: Block, kept: Holders) -> list[tuple[bytes, int, int]]:
        """Leave a block these holders, none being its end.

        Answers key, token count and new tier of each key whose tier changed.
        """
        before = [self._tier(block, key) for key in block.each_key()]
        self._set_holders(block, kept)
        if not kept.each:
            self._blocks.forget(block)
        if block.opaque:
            return []
        changed = []
        for (key, token_count), was in zip(self._keys_of(block), before, strict=True):
            tier = self._tier(block, key)
            if tier != was:
                changed.append((key, token_count, tier))
        return changed

    def _void(self, lane: _Lane, report: Cleared | Restarted, out: Reports) -> None:
        """A source holds nothing any more; alone, it takes everything reported with it [SUB-023]."""
        if len(self._lanes) == 1:
            self._blocks.forget_lane(lane.index)
            self._held.clear()
            self._predictions.clear()
            out.void(report)
        else:
            self._withdraw_all(lane, out)
            for predicted in self._predictions.take_lane(lane.index):
                self._take_back(predicted, out)
        lane.reset()

    def _expire(self, now: float, out: Reports) -> None:
        if self._predictions:
            room = max(0, self._settings.max_tracked_blocks - len(self._blocks))
            for predicted in self._predictions.take_expired(now, room):
                self._diary.count("predictions_expired")
                self._take_back(predicted, out)

    def _take_back(self, predicted: Predicted, out: Reports) -> None:
        if self._held.tier(predicted.adapter, predicted.key) == NO_TIER:
            out.evict(predicted.adapter, predicted.key)

    # ------------------------------------------------------------------ holders

    def _holder_of(self, event: Stored, tier: int) -> Holder:
        return Holder(medium_name(event.medium), event.group, event.ownership, tier)

    def _hold(self, block: Block, holder: Holder) -> None:
        held = block.holders.each
        if holder not in held:
            self._set_holders(block, self._shared((*held, holder)))

    def _shared(self, each: tuple[Holder, ...]) -> Holders:
        holders = self._holder_sets.get(each)
        if holders is None:
            holders = Holders.of(each)
            if len(self._holder_sets) < MAX_SHARED_HOLDER_SETS:
                self._holder_sets[each] = holders
        return holders

    def _renew(self, block: Block) -> None:
        """A copy is announced: those from before a gap may be gone, so that it alone is certain."""
        if block.doubts != self._doubts:
            block.holders = NOBODY
            block.doubts = self._doubts

    def _set_holders(self, block: Block, holders: Holders) -> None:
        before, block.holders = block.holders, holders
        if block.opaque or block.doubts != self._doubts:
            return
        t1, t2 = holders.on_t1 - before.on_t1, holders.on_t2 - before.on_t2
        if t1 or t2:
            for key in block.each_key():
                self._held.adjust(block.adapter, key, t1, t2)

    def _tier(self, block: Block, key: bytes) -> int:
        """At which tier a key of the block is told: certainly, or else as the block says that is in doubt."""
        tier = self._held.tier(block.adapter, key)
        return tier if tier != NO_TIER or block.doubts == self._doubts else block.holders.tier

    def _keys_of(self, block: Block) -> Iterator[tuple[bytes, int]]:
        """Each key of a block with its token count."""
        if len(block.keys) == KEY_BYTES:
            yield block.keys, block.token_count
            return
        size = self.block_size(block.lane)
        token_count = block.token_count - (len(block.keys) // KEY_BYTES - 1) * size
        for key in block.each_key():
            yield key, token_count
            token_count += size

    # ------------------------------------------------------------------ telling

    def _by_age(self, blocks: Sequence[Block], now: float) -> Iterator[StateGroup]:
        """Group blocks, given oldest first, so that one age is about right for each of a group."""
        at = 0
        while at < len(blocks):
            oldest = blocks[at].stored_at
            end = at + 1
            while end < len(blocks) and blocks[end].stored_at <= _age_limit(oldest, now):
                end += 1
            out = Reports()
            for block in sorted(blocks[at:end], key=attrgetter("adapter", "token_count")):
                for key, token_count in self._keys_of(block):
                    tier = self._tier(block, key)
                    # Several blocks of one key: those in its tier tell it.
                    if tier != TIER_T1 or block.holders.on_t1:
                        out.add(block.adapter, tier, key, token_count)
            if out.items:
                yield StateGroup(oldest, out.items)
            at = end

    def _predicted(self, now: float) -> Iterator[StateGroup]:
        out, oldest = Reports(), now
        for predicted, token_count, made_at in self._predictions.each():
            if out.items and made_at > _age_limit(oldest, now):
                yield StateGroup(oldest, out.items)
                out = Reports()
            if not out.items:
                oldest = made_at
            if self._held.tier(predicted.adapter, predicted.key) == NO_TIER:
                out.add(predicted.adapter, TIER_T2, predicted.key, token_count)
        if out.items:
            yield StateGroup(oldest, out.items)

    def _warn_of_counts(self, reason: str, event: Stored) -> None:
        self._diary.count(reason)
        self._diary.warn(
            reason,
            "BlockStored produced no index entries (missing or mismatched token_ids)",
            block_hashes=len(event.hashes),
            tokens=len(event.tokens),
            block_size=event.block_size,
        )

    def _warn_of_size(self, event: Stored, expected: int) -> None:
        self._diary.count("block_size_mismatch")
        self._diary.warn_once(
            "block_size_mismatch",
            event.block_size,
            "blocks of another size than the source's are ignored",
            block_size=event.block_size,
            expected=expected,
        )


class _Chunks(NamedTuple):
    """The unknown blocks of a T2 store: each stands for `keys_each` keys of the source's block size."""

    keys_each: int
    contents: Sequence[bytes]
    block_size: int
    adapter: AdapterId
    opacity: Sequence[bool] | None

    def block(
        self, index: int, hash_: BlockHash, lane: int, previous: _Start, now: float, doubts: int
    ) -> Block:
        """The block at `index`, without a holder yet."""
        contents = self.contents[index * self.keys_each : (index + 1) * self.keys_each]
        opaque = previous.opaque or (self.opacity is not None and self.opacity[index])
        return Block(
            hash_,
            lane,
            previous.hash,
            b"".join(_roll_on(contents, previous.prefix)),
            min(previous.token_count + self.block_size, MAX_TOKEN_COUNT),
            self.adapter,
            opaque,
            now,
            doubts,
        )


_NO_CHUNKS: Final = _Chunks(0, (), 0, AdapterId(""), None)


def _age_limit(oldest: float, now: float) -> float:
    """Up to when blocks are of about the age of the oldest of a group."""
    return oldest + max(MIN_AGE_GROUP_S, (now - oldest) * AGE_GROUP_SHARE)


def _start_at(block: Block) -> _Start:
    return _Start(block.last_key, block.token_count, block.opaque, block.hash)


def _after(known: Mapping[BlockHash, Block], parent: BlockHash | None) -> _Start | None:
    """Where a chain with this parent begins, None when the parent is unknown [SUB-081]."""
    if parent is None:
        return _ROOT
    block = known.get(parent)
    return None if block is None else _start_at(block)


def _chain(tokens: Sequence[int], size: int, prefix: bytes | None) -> Iterator[bytes]:
    return _roll_on(wire_form(content_hashes(tokens, size)), prefix)


def _roll_on(contents: Sequence[bytes], prefix: bytes | None) -> Iterator[bytes]:
    if prefix is None:
        return accumulate(contents, roll)
    return islice(accumulate(contents, roll, initial=prefix), 1, None)


def _own_opacity(event: Stored) -> list[bool] | None:
    """Which blocks the event's own fields make depend on more than tokens and adapter [SUB-088]."""
    if event.cache_salt is not None:
        return [True] * len(event.hashes)
    if event.extra_keys is None:
        return None
    opacity = [any(key != event.lora_name for key in keys or ()) for keys in event.extra_keys]
    return opacity if any(opacity) else None


def _names(event: Removed, holder: Holder) -> bool:
    """Does a removal mean this holder? A group that either side leaves out fits any [SUB-103]."""
    return (
        holder.medium == medium_name(event.medium)
        and holder.ownership == event.ownership
        and (event.group is None or holder.group is None or holder.group == event.group)
    )
