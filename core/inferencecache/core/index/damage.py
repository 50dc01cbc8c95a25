"""What makes a delta senseless, found before any of its changes is applied: damage never applies by half."""

from __future__ import annotations

from typing import Final

from inferencecache.schemas.deltas import (
    AnyChange,
    Delta,
    Held,
    Released,
    ReplicaForgotten,
    ReplicaRow,
    TimeStarted,
)
from inferencecache.schemas.records import TIER_COLDEST, TIER_T1

_KEY_BYTES: Final = 8
_COUNT_BYTES: Final = 4
_TIMES: Final = range(-(2**63), 2**63)


def damage_of(delta: Delta) -> str | None:
    """What is wrong with the delta, whatever the state it meets; None if every change can be applied."""
    if delta.time_us not in _TIMES:
        return f"log time {delta.time_us}"
    count = len(delta.holders)
    for change in delta.changes:
        damage = _damage_of(change, count)
        if damage is not None:
            return damage
    return None


def _damage_of(change: AnyChange, holders: int) -> str | None:
    match change:
        case ReplicaForgotten():
            return None
        case ReplicaRow():
            return None if change.alive_us in _TIMES else f"alive at {change.alive_us}"
        case TimeStarted():
            return None if change.time_us in _TIMES else f"log time starts at {change.time_us}"
    if not 0 <= change.holder < holders:
        return f"holder {change.holder} of {holders}"
    if isinstance(change, Held | Released) and len(change.keys) % _KEY_BYTES:
        return f"{len(change.keys)} bytes of keys"
    if isinstance(change, Held):
        if len(change.keys) // _KEY_BYTES * _COUNT_BYTES != len(change.token_counts):
            return f"{len(change.keys)} bytes of keys, {len(change.token_counts)} of token counts"
        if not TIER_T1 <= change.tier <= TIER_COLDEST:
            return f"tier {change.tier}"
        if change.last_seen_us not in _TIMES:
            return f"seen at {change.last_seen_us}"
    return None
