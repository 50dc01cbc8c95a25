"""Dividing the cap and tenants' quotas over a generation's partitions by demand, never more than there is.

One process, the owner of partition 0, divides; whoever owns a partition appends its part to the log, and
tells in its count when the fold keeps to it. A division is followed by another only after every partition
keeps to it, so at most two are in force at a time, and a part grows only by what all others together leave
of the whole: the larger of what each may hold and what it still holds. Parts that are to shrink do so at
once; so room moves in two steps, first the taking, then the giving. A whole may be lowered between the two,
and partitions learn of it at different times too: so a share names the parts before it, and of a lowered
whole a partition takes no more than others leave that keep to either.

Demand is what a partition holds and what it evicted since the last change. While all demands fit, each
partition gets its own and an even part of the rest; else all get the same share of theirs. Under sustained
pressure parts so come to be in proportion to what partitions store, which is how one index for all would
divide itself. A partition is pressed when it evicts or is nearly full; a change is made only for one
that is pressed and would gain noticeably: more so when all are pressed, because then chance alone moves
demand, and what one gains another loses.

Everything here is pure; nobody's clock counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from inferencecache.core.index.eviction import UNBOUNDED
from inferencecache.core.index.fold import Fold
from inferencecache.schemas.budgets import Division, PartitionUse, Share, Use
from inferencecache.schemas.ids import TenantId
from inferencecache.schemas.records import Budget, PolicyApplied, TenantQuota

NOTICEABLE_OF_PART: Final = 1 / 8
NOTICEABLE_OF_WHOLE: Final = 1 / 100
"""While a partition is not pressed, a gain of this is noticed too. Less than 1 never is."""
NEARLY_FULL: Final = 7 / 8

_Whole = TenantId | None
"""What is divided: a tenant's quota, or the cap."""


def even_parts(whole: int, partitions: int) -> tuple[int, ...]:
    """The first division, before anything is known of demand; the parts sum up to the whole."""
    return tuple(whole // partitions + (number < whole % partitions) for number in range(partitions))


def part_of(whole: int, share: Share | None, partition: int, partitions: int) -> int:
    """A partition's part of `whole` entries or keys, -1 (no limit) if that has none.

    A share of a larger whole, which has been lowered since, is lowered with it; one of a smaller whole
    stays until the next division.
    """
    if whole < 0:
        return UNBOUNDED
    if share is None or len(share.parts) != partitions:
        return even_parts(whole, partitions)[partition]
    part = share.parts[partition]
    if whole >= share.whole:
        return part
    return min(_lowered(part, share.whole, whole), _beside_earlier(share, whole, partition))


def _beside_earlier(share: Share, whole: int, partition: int) -> int:
    """The most that a partition may hold of a lowered whole while others keep to the earlier parts.

    Earlier parts of a smaller whole are not lowered as far, so what parts may grow by is no longer all
    there: of what is, each gets as much of its growth as the others do.
    """
    if len(share.earlier) != len(share.parts):
        return even_parts(whole, len(share.parts))[partition]
    scale = Fraction(min(whole, share.earlier_whole), max(1, share.earlier_whole))
    growths = [
        max(0, part - _lowered(before, share.earlier_whole, share.whole))
        for part, before in zip(share.parts, share.earlier, strict=True)
    ]
    most, growth = share.earlier[partition] * scale, growths[partition]
    if growth:
        most += growth * min(Fraction(1), (whole - sum(share.earlier) * scale) / sum(growths))
    return int(most)


def _lowered(part: int, before: int, whole: int) -> int:
    return part * whole // before if whole < before else part


def budget_of(
    policy: PolicyApplied, max_entries: int, division: Division | None, partition: int, partitions: int
) -> Budget:
    """A partition's part of everything, as the record that its owner appends; whose it is, is left open.

    With one partition quotas need no parts.
    """
    quotas: tuple[TenantQuota, ...] = ()
    shares = division.quotas if division is not None else {}
    if partitions > 1:
        quotas = tuple(
            TenantQuota(
                each.tenant, part_of(max(0, each.max_keys), shares.get(each.tenant), partition, partitions)
            )
            for each in policy.quotas
        )
    return Budget(
        policy.owner,
        policy.owner_epoch,
        part_of(max_entries, division.cap if division is not None else None, partition, partitions),
        quotas,
        division.number if division is not None else 0,
    )


def budget_kept_to(fold: Fold, policy: PolicyApplied, partition: int, partitions: int) -> Budget:
    """What is in force in the fold, of the quotas of `policy`: how an owner goes on that does not know the
    division yet which the fold keeps to.
    """
    before = {each.tenant: max(0, each.max_keys) for each in fold.policy.quotas}
    parts = {each.tenant: each.max_keys for each in fold.budget.quotas if each.tenant in before}
    quotas: list[TenantQuota] = []
    for tenant, whole in ((each.tenant, max(0, each.max_keys)) for each in policy.quotas):
        part = (
            _lowered(parts[tenant], before[tenant], whole)
            if tenant in parts
            else even_parts(whole, partitions)[partition]
        )
        quotas.append(TenantQuota(tenant, part))
    return replace(fold.budget, quotas=tuple(quotas))


def use_of(fold: Fold, partition: int, partitions: int) -> PartitionUse:
    """What a partition's owner tells of it."""
    view, budget, policy = fold.view, fold.budget, fold.policy
    parts = {each.tenant: each.max_keys for each in budget.quotas}
    uses: dict[TenantId, Use] = {}
    for each in policy.quotas:
        tenant, whole = each.tenant, max(0, each.max_keys)
        known = view.holders.tenants.get(tenant)
        use = Use(
            known.keys if known is not None else 0, parts.get(tenant, whole), fold.tenant_evictions[tenant]
        )
        if use != _unused(whole, partition, partitions):
            uses[tenant] = use
    evicted = sum(count for (_, reason), count in fold.evictions.items() if reason == "cap")
    cap = Use(view.entries, budget.max_entries, evicted)
    return PartitionUse(view.owner_epoch, budget.division, policy.revision, cap, uses)


def _unused(whole: int, partition: int, partitions: int) -> Use:
    return Use(0, even_parts(whole, partitions)[partition])


class Divider:
    """Divides for one generation. What it remembers is the partitions' use; the division itself is in the
    bucket, so a divider may be replaced at any time.
    """

    def __init__(self, partitions: int) -> None:
        self._uses: list[PartitionUse | None] = [None] * partitions
        self._is_lost = False
        self._evicted: dict[_Whole, list[int]] = {}
        """By partition, what was evicted since the parts of this whole last stood as they were to."""

    def used(self, partition: int, use: PartitionUse) -> None:
        """A partition's owner has told what it uses."""
        before = self._uses[partition]
        self._uses[partition] = use
        if before is None or before.owner_epoch != use.owner_epoch:
            return  # another owner counts evictions from another beginning
        self._count(None, partition, before.cap, use.cap)
        for tenant in before.quotas.keys() & use.quotas.keys():
            self._count(tenant, partition, before.quotas[tenant], use.quotas[tenant])

    def lost(self) -> None:
        """The bucket is empty, or was: what partitions told may be outdated, so all have to tell anew."""
        self._uses = [None] * len(self._uses)
        self._is_lost = True

    def divide(self, division: Division | None, max_entries: int, policy: PolicyApplied) -> Division | None:
        """What is to replace `division`, None while it stands.

        It stands until every partition keeps to it. One that is lost, or an earlier one in its place, is
        followed by one that says what is in force and gives nothing. Some owners may have read the one that
        is lost and not told so; that is the next after the latest which is told, so the number after that
        is free.

        Quotas are divided under one policy set, the cap under any: owners may differ for as long as nobody
        writes the policy set again that was lost with its bucket.
        """
        uses = [use for use in self._uses if use is not None]
        if len(uses) < len(self._uses) or len(uses) == 1:
            return None
        is_one_policy = all(use.policy == policy.revision for use in uses)
        latest = max(use.division for use in uses)
        known = division or Division(0)
        is_lost = known.number < latest or (division is None and self._is_lost)
        if division is not None and not is_lost and any(use.division != division.number for use in uses):
            return None
        if is_lost and not is_one_policy and (policy.quotas or any(use.quotas for use in uses)):
            return None  # not all of what is in force of quotas is told

        def next_share(name: _Whole, whole: int, share: Share | None, its: list[Use]) -> Share | None:
            if is_lost:
                return _kept(whole, its)
            is_usable = share is None or _is_over(share, len(its))
            return self._share(name, whole, share if is_usable else _in_force(whole, its), its)

        cap = next_share(None, max_entries, known.cap, [use.cap for use in uses])
        quotas = {} if is_one_policy or is_lost else dict(known.quotas)
        for tenant, most in ((each.tenant, max(0, each.max_keys)) for each in policy.quotas if is_one_policy):
            its = [
                use.quotas.get(tenant) or _unused(most, number, len(uses)) for number, use in enumerate(uses)
            ]
            share = next_share(tenant, most, known.quotas.get(tenant), its)
            if share is not None:
                quotas[tenant] = share
        if is_lost:
            return Division(latest + 2, cap, quotas)
        is_same = cap == known.cap and all(known.quotas.get(each) == share for each, share in quotas.items())
        return None if is_same else Division(known.number + 1, cap, quotas)

    def _count(self, whole: _Whole, partition: int, before: Use, use: Use) -> None:
        if use.evicted > before.evicted:
            counts = self._evicted.setdefault(whole, [0] * len(self._uses))
            counts[partition] += use.evicted - before.evicted

    def _share(self, name: _Whole, whole: int, share: Share | None, uses: list[Use]) -> Share | None:
        """The next parts of a whole; None while it is divided evenly, and if it has no limit."""
        if whole < 0:
            return None
        partitions = len(uses)
        even = even_parts(whole, partitions)
        now = share or Share(whole, even, even)
        aims = now.aims
        if now.whole != whole or now.parts == now.aims:
            evicted = self._evicted.get(name) or [0] * partitions
            wanted = _Wanted(whole, [use.held + count for use, count in zip(uses, evicted, strict=True)])
            is_pressed = [
                count > 0 or use.held >= NEARLY_FULL * part
                for count, use, part in zip(evicted, uses, now.parts, strict=True)
            ]
            if now.whole == whole and not any(
                is_pressed[number] and wanted.gain(number, part) >= _noticed(part, whole, all(is_pressed))
                for number, part in enumerate(now.parts)
            ):
                return share and _settled(share)
            aims = wanted.rounded()
        most = even if share is None else tuple(_lowered(part, share.whole, whole) for part in share.parts)
        parts = _towards(aims, whole, most, uses)
        if parts == aims:
            self._evicted.pop(name, None)
        if share is None:
            return Share(whole, parts, aims)
        if (whole, parts, aims) == (share.whole, share.parts, share.aims):
            return _settled(share)
        return Share(whole, parts, aims, share.whole, share.parts)


class _Wanted:
    """What each partition is to have of the whole, in fractions of `_scale`; exact for any size."""

    def __init__(self, whole: int, demands: Sequence[int]) -> None:
        self._whole = whole
        total = sum(demands)
        if total <= whole:
            self._scale = len(demands)
            self._scaled = [demand * self._scale + whole - total for demand in demands]
        else:
            self._scale = total
            self._scaled = [whole * demand for demand in demands]

    def rounded(self) -> tuple[int, ...]:
        """Whole numbers that sum up to the whole: those with the largest fractions are rounded up."""
        parts = [scaled // self._scale for scaled in self._scaled]
        missing = self._whole - sum(parts)
        by_fraction = sorted(range(len(parts)), key=lambda number: -(self._scaled[number] % self._scale))
        for number in by_fraction[:missing]:
            parts[number] += 1
        return tuple(parts)

    def gain(self, number: int, part: int) -> float:
        """What a partition that has `part` would gain."""
        return self._scaled[number] / self._scale - part


def _noticed(part: int, whole: int, are_all_pressed: bool) -> float:
    """The least gain for which a partition that has `part` is given more."""
    of_part = NOTICEABLE_OF_PART * part
    return max(1.0, of_part if are_all_pressed else min(of_part, NOTICEABLE_OF_WHOLE * whole))


def _is_over(share: Share, partitions: int) -> bool:
    """Is the share one over so many partitions?"""
    return len(share.parts) == len(share.aims) == partitions


def _settled(share: Share) -> Share:
    """Nobody keeps to what was before it any more."""
    return replace(share, earlier_whole=share.whole, earlier=share.parts)


def _in_force(whole: int, uses: Sequence[Use]) -> Share:
    """What each partition may hold by what it tells; even parts before it was told of any."""
    even = even_parts(max(0, whole), len(uses))
    parts = tuple(use.part if use.part >= 0 else even[number] for number, use in enumerate(uses))
    return _settled(Share(sum(parts), parts, parts))


def _kept(whole: int, uses: Sequence[Use]) -> Share | None:
    """The parts in force; None where they are even, and if the whole has no limit."""
    share = _in_force(whole, uses)
    return None if whole < 0 or share.parts == even_parts(whole, len(uses)) else share


def _towards(aims: Sequence[int], whole: int, most: Sequence[int], uses: Sequence[Use]) -> tuple[int, ...]:
    """The parts that may be given now: less at once, more only from what all others leave of the whole: what
    they tell that they may hold, what they may by the share that stands (`most`), and what they hold.
    """
    in_force = _in_force(whole, uses).parts
    parts = [min(aim, part) for aim, part in zip(aims, in_force, strict=True)]
    taken = (max(part, may, use.held) for part, may, use in zip(in_force, most, uses, strict=True))
    room = whole - sum(taken)
    for number, aim in enumerate(aims):
        more = min(aim - parts[number], max(0, room))
        parts[number] += more
        room -= more
    return tuple(parts)
