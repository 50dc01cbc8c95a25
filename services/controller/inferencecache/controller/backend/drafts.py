"""The status of a backend while a pass works on it: what was stored, and what is to be stored instead."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from inferencecache.core.kube.backends import Backend
from inferencecache.core.kube.conditions import Verdict, conditions_of, with_conditions
from inferencecache.core.kube.kinds import Document


class StatusDraft:
    """Starts as the stored status and never touches what others write there [CTL-21].

    With `settled` False the objects of this generation could not be applied: what is judged then is judged
    about the generation that was observed before [CTL-47].
    """

    def __init__(self, backend: Backend, now: datetime, *, settled: bool = True) -> None:
        self.now = now
        self._stored = backend.status
        self._before = conditions_of(self._stored)
        self._generation = backend.generation
        self._settled = settled
        self._fields: dict[str, Any] = {"failOpen": backend.fail_open}
        self._verdicts: dict[str, Verdict | None] = {}
        self._current: set[str] = set()
        if settled:
            self._fields["observedGeneration"] = self._generation

    def get(self, field: str) -> Any:
        """A field as it now is, None when absent."""
        return self._fields[field] if field in self._fields else self._stored.get(field)

    def put(self, field: str, value: object) -> None:
        """None takes the field away."""
        self._fields[field] = value

    def judged(self, type_: str) -> Verdict | None:
        """A condition as it now is."""
        if type_ in self._verdicts:
            return self._verdicts[type_]
        before = self._before.get(type_)
        return None if before is None else Verdict(before["status"], before["reason"], before["message"])

    def is_current(self, type_: str) -> bool:
        """Whether the stored condition is about the generation at hand."""
        return self._before.get(type_, {}).get("observedGeneration") == self._generation

    def judge(self, type_: str, verdict: Verdict | None, *, current: bool = False) -> None:
        """Set a condition, or take it away; the last word counts. `current`: it is about this generation
        whatever could be applied [CTL-93].
        """
        self._verdicts[type_] = verdict
        if current:
            self._current.add(type_)

    def keep(self, field: str, type_: str) -> None:
        """Leave a field and a condition as they are stored."""
        self._fields.pop(field, None)
        self._verdicts.pop(type_, None)

    @property
    def fields(self) -> Document:
        """Fields of the status to set, None for those to remove."""
        if not self._verdicts:
            return self._fields
        stored = self._stored.get("conditions") or ()
        conditions = with_conditions(stored, self._verdicts, generation=self._generation, now=self.now)
        return self._fields | {"conditions": [self._dated(condition) for condition in conditions] or None}

    @property
    def is_changed(self) -> bool:
        """Is anything to be stored?"""
        return any(self._stored.get(field) != value for field, value in self.fields.items())

    @property
    def status(self) -> Document:
        """The status as it is once the fields are set."""
        merged = self._stored | self.fields
        return {field: value for field, value in merged.items() if value is not None}

    def _dated(self, condition: Document) -> Document:
        type_ = condition["type"]
        if self._settled or type_ in self._current or type_ not in self._verdicts:
            return condition
        earlier = self._before.get(type_, self._stored).get("observedGeneration")
        rest = {key: value for key, value in condition.items() if key != "observedGeneration"}
        return rest if earlier is None else rest | {"observedGeneration": earlier}
