"""Are the streams and buckets of the log there, safe, copied as asked for, and folded in time?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from inferencecache.cli.doctor.facts import BusFacts, LogFacts, StreamFacts
from inferencecache.cli.doctor.findings import Finding, found
from inferencecache.cli.owners import Owner
from inferencecache.core.log.assets import SNAPSHOT_PERIOD_S, SNAPSHOT_PERIODS_KEPT

MOST_LAG_S: Final = 5.0
LEAST_AGE_S: Final = SNAPSHOT_PERIOD_S * SNAPSHOT_PERIODS_KEPT
_COPIES: Final = "num_replicas"
_KEPT_FOR: Final = "max_age"
_GIBIBYTE: Final = 1024**3


def check_streams(facts: BusFacts) -> Iterator[Finding]:
    """Nothing where NATS was not reached, which the aggregate's check says."""
    if not isinstance(facts.log, LogFacts):
        return
    findings = [
        *(finding for stream in facts.log.streams for finding in _check(stream)),
        *(finding for owner in facts.log.owners for finding in _check_owner(owner)),
    ]
    yield from findings or [found("JS005", facts.address, _summary(facts.log))]


def _check(stream: StreamFacts) -> Iterator[Finding]:
    if not stream.is_there:
        yield found("JS001", stream.name, "it does not exist")
        return
    for drift in stream.drifts:
        setting, declared, actual = drift.setting, drift.declared, drift.actual
        if setting == _KEPT_FOR and 0 < stream.max_age_s < LEAST_AGE_S and stream.name.startswith("IC_"):
            kept = f"it keeps messages for {stream.max_age_s:.0f} s, at least {LEAST_AGE_S:.0f} s are needed"
            yield found("JS002", stream.name, kept)
        elif setting == _COPIES and isinstance(declared, int) and stream.copies < declared:
            yield found("JS003", stream.name, f"it has {stream.copies} copies instead of {declared}")
        elif setting != _COPIES:
            yield found("JS006", stream.name, f"{setting} is {actual!r}, declared is {declared!r}")


def _check_owner(owner: Owner) -> Iterator[Finding]:
    if not owner.indexer:
        yield found("JS004", f"partition {owner.partition}", "nobody owns it, so nobody folds its log")
    elif owner.lag_s > MOST_LAG_S:
        yield found(
            "JS004",
            f"partition {owner.partition}",
            f"its owner {owner.indexer} folds {owner.lag_s:.1f} s behind the log",
        )


def _summary(log: LogFacts) -> str:
    reserved = _gib(stream.reserved_bytes for stream in log.streams)
    of = f" of {_gib([log.store_bytes])}" if log.store_bytes else ""
    return f"{len(log.streams)} streams are as declared, which reserve {reserved}{of} GiB"


def _gib(sizes: Iterable[int]) -> str:
    return f"{sum(size for size in sizes if size > 0) / _GIBIBYTE:.1f}"
