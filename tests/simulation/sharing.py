"""The cap and the quota, shared by the partitions of a generation: what each may hold by its log, and whether
that is together what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from inferencecache.core.index.eviction import UNBOUNDED
from inferencecache.core.index.fold import Fold
from inferencecache.schemas.budgets import Division, Share
from tests.simulation.world import TENANT


class Part(NamedTuple):
    """What one partition may hold, entries of the cap and keys of the tenant, whose whole is `quota`."""

    entries: int
    keys: int
    quota: int


def part_of(fold: Fold) -> Part:
    """What is in force in a partition."""
    [quota] = [each.max_keys for each in fold.policy.quotas if each.tenant == TENANT] or [UNBOUNDED]
    [keys] = [each.max_keys for each in fold.budget.quotas if each.tenant == TENANT] or [quota]
    return Part(fold.budget.max_entries, keys if quota >= 0 else UNBOUNDED, quota)


def is_over(fold: Fold) -> bool:
    """Does a partition hold more than it may?"""
    part, tenant = part_of(fold), fold.view.holders.tenants.get(TENANT)
    keys = tenant.keys if tenant is not None else 0
    return 0 <= part.entries < fold.view.entries or 0 <= part.keys < keys


def over_the_whole(parts: Sequence[Part], cap: int) -> str:
    """Where partitions may together hold more than there is; those that know no limit yet do not count.

    While a new quota is on its way, the larger one counts.
    """
    entries = sum(part.entries for part in parts if part.entries >= 0)
    if entries > cap >= 0:
        return f"partitions may hold {entries} entries, the cap is {cap}: {parts}"
    keys, quota = sum(part.keys for part in parts if part.keys >= 0), max(part.quota for part in parts)
    if keys > quota >= 0:
        return f"partitions may hold {keys} keys, the quota is {quota}: {parts}"
    return ""


def not_shared(parts: Sequence[Part], cap: int, division: Division | None) -> Iterator[str]:
    """Where the parts in force are not the whole, or are not those of the division.

    There is no whole quota where owners know different ones: the bucket has lost it, and it is not written
    again.
    """
    entries, keys = [part.entries for part in parts], [part.keys for part in parts]
    quotas = {part.quota for part in parts}
    shares = division.quotas if division is not None else {}
    yield from _not_shared("cap", cap, entries, division.cap if division is not None else None)
    if len(quotas) == 1:
        yield from _not_shared("quota", quotas.pop(), keys, shares.get(TENANT))


def _not_shared(what: str, whole: int, parts: Sequence[int], share: Share | None) -> Iterator[str]:
    if whole >= 0 and sum(parts) != whole:
        yield f"of a {what} of {whole} partitions have {parts}"
    if whole >= 0 and len(parts) > 1 and share is not None and list(share.parts) != parts:
        yield f"partitions have {parts} of a {what} of {whole}, divided is {share}"
