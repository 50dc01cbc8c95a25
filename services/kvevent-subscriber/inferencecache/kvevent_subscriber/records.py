"""From reports to records of the log: the same content in packed columns, within the limits of a record."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from inferencecache.kvevent_subscriber.blocks import KEY_BYTES
from inferencecache.kvevent_subscriber.reports import (
    Added,
    AllKnown,
    Cleared,
    Doubted,
    Evicted,
    Report,
    Restarted,
)
from inferencecache.schemas import records
from inferencecache.schemas.ids import HashScheme

MAX_ENTRIES: Final = 4096
"""Most keys in one record [SUB-112]."""


def records_of(reports: Iterable[Report], scheme: HashScheme) -> list[records.AnyRecord]:
    """Records that say the same in the same order.

    A restart is said by beginning anew and not by a record, so there must be none among the reports.
    """
    out: list[records.AnyRecord] = []
    for report in reports:
        match report:
            case Added():
                out.extend(_stored(report, scheme))
            case Evicted():
                out.extend(_evicted(report))
            case Cleared():
                out.append(records.Cleared())
            case Doubted():
                out.append(records.Gap(report.missed))
            case AllKnown():
                out.append(records.Complete())
            case Restarted():
                raise ValueError("a restart is no record: begin a new incarnation")
    return out


def _stored(report: Added, scheme: HashScheme) -> Iterator[records.Stored]:
    for at in range(0, len(report.keys), MAX_ENTRIES):
        keys = report.keys[at : at + MAX_ENTRIES]
        counts = report.token_counts[at : at + MAX_ENTRIES]
        yield records.Stored(
            scheme=scheme,
            adapter=report.adapter,
            tier=report.tier,
            width=KEY_BYTES,
            hashes=b"".join(keys),
            token_counts=struct.pack(f"<{len(counts)}i", *counts),
        )


def _evicted(report: Evicted) -> Iterator[records.Evicted]:
    for at in range(0, len(report.keys), MAX_ENTRIES):
        yield records.Evicted(
            adapter=report.adapter,
            width=KEY_BYTES,
            hashes=b"".join(report.keys[at : at + MAX_ENTRIES]),
        )
