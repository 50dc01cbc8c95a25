"""Conditions of a status: one item a type, with a time that moves only with the status [CTL-19]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from inferencecache.core.kube.kinds import Document


class Verdict(NamedTuple):
    """What a condition says: status `True`, `False` or `Unknown`, and why."""

    status: str
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        """Is the status True? Unknown is not."""
        return self.status == "True"


def timestamp(now: datetime) -> str:
    """RFC 3339 in UTC with whole seconds [CTL-23]."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_timestamp(text: str) -> datetime:
    """The moment of an RFC 3339 text. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def conditions_of(status: Mapping[str, Any] | None) -> dict[str, Document]:
    """The conditions of a status, by type."""
    return {each["type"]: each for each in (status or {}).get("conditions") or ()}


def with_conditions(
    before: Iterable[Document],
    verdicts: Mapping[str, Verdict | None],
    *,
    generation: int,
    now: datetime,
) -> list[Document]:
    """The conditions with these set, or removed where the verdict is None; others stay as they are."""
    conditions = {each["type"]: each for each in before}
    for type_, verdict in verdicts.items():
        if verdict is None:
            conditions.pop(type_, None)
            continue
        old = conditions.get(type_)
        is_same = old is not None and old["status"] == verdict.status
        conditions[type_] = {
            "type": type_,
            "status": verdict.status,
            "reason": verdict.reason,
            "message": verdict.message,
            "lastTransitionTime": old["lastTransitionTime"] if old and is_same else timestamp(now),
            "observedGeneration": generation,
        }
    return list(conditions.values())
