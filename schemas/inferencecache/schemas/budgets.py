"""Who may hold how much of the cap and of tenants' quotas: `<generation>.budget` in `IC_AGGREGATE`, and what
each partition says of its use in its own value there.
"""

from __future__ import annotations

import msgspec

from inferencecache.schemas.ids import TenantId


class Share(msgspec.Struct, frozen=True):
    """`whole` over the partitions, by number: the parts they may hold now, and those that are aimed at.

    A part grows to its aim only once others have given room, so the parts never sum up to more than
    `whole`; the aims sum up to `whole`. `earlier` are the parts of `earlier_whole` that some partitions may
    still keep to; none are named where those are even.
    """

    whole: int
    parts: tuple[int, ...]
    aims: tuple[int, ...]
    earlier_whole: int = 0
    earlier: tuple[int, ...] = ()


class Division(msgspec.Struct, frozen=True):
    """The division in force; its number grows with each. What it does not name is divided evenly."""

    number: int
    cap: Share | None = None
    quotas: dict[TenantId, Share] = {}


class Use(msgspec.Struct, frozen=True):
    """One partition's use of a whole: entries (of the cap) or distinct keys (of a quota).

    `part` is what it may hold, -1 when there is no limit; `evicted` counts what was evicted to keep to
    that since some time of the owner's.
    """

    held: int
    part: int
    evicted: int = 0


class PartitionUse(msgspec.Struct, frozen=True, rename="camel"):
    """A partition's use of everything, as the owner of `owner_epoch` folded it.

    It keeps to the division of this number and to the policy set of this revision, and will not go back
    to an earlier one. `quotas` has the tenants that this policy set limits.
    """

    owner_epoch: int
    division: int
    policy: int
    cap: Use
    quotas: dict[TenantId, Use] = {}
