"""A stream as a NATS server keeps it: numbers, timestamps, expectations, duplicates, limits, removal.

The order of checks is the server's: an expectation about the last message comes before the message id, so
a conditional publish that was stored is refused when it comes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

WRONG_LAST_SEQUENCE = 10071
STORE_FAILED = 10077


class RefusedError(Exception):
    """The server's answer to a message that it does not store."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code


class Kept(NamedTuple):
    """One message of a stream."""

    sequence: int
    subject: str
    payload: bytes
    headers: Mapping[str, str]
    time_ns: int


class Stream:
    """Messages by number; `first` is the lowest there is, `last` + 1 in a stream without any."""

    def __init__(self, config: dict[str, Any], created_ns: int) -> None:
        self.config = config
        self.name: str = config["name"]
        self.created_ns = created_ns
        self.first = 0
        self.last = 0
        self.messages: dict[int, Kept] = {}
        self.by_subject: dict[str, list[int]] = {}
        self.ids: dict[str, int] = {}
        self.is_full = False
        self.most_per_subject: int = config.get("max_msgs_per_subject", 0)
        self.max_age_ns: int = config.get("max_age", 0)

    def copy(self) -> Stream:
        twin = Stream(self.config, self.created_ns)
        twin.first, twin.last = self.first, self.last
        twin.messages = dict(self.messages)
        twin.by_subject = {subject: list(numbers) for subject, numbers in self.by_subject.items()}
        twin.ids = dict(self.ids)
        return twin

    @property
    def is_in_memory(self) -> bool:
        return bool(self.config.get("storage") == "memory")

    def last_of(self, subject: str) -> Kept | None:
        numbers = self.by_subject.get(subject)
        return self.messages[numbers[-1]] if numbers else None

    def matching(self, pattern: str) -> Iterator[str]:
        """Subjects that there are messages of."""
        if pattern.endswith(">"):
            prefix = pattern[:-1]
            return (subject for subject in self.by_subject if subject.startswith(prefix))
        return iter([pattern] if pattern in self.by_subject else [])

    def store(
        self, subject: str, payload: bytes, headers: Mapping[str, str], time_ns: int
    ) -> tuple[int, Kept | None]:
        """The message's number, and what is stored if it is no duplicate. Raises RefusedError."""
        if self.is_full:
            raise RefusedError(503, STORE_FAILED, "maximum bytes exceeded")
        expected = headers.get("Nats-Expected-Last-Sequence")
        if expected is not None and int(expected) != self.last:
            raise _wrong_last(self.last)
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None:
            last = self.last_of(subject)
            number = last.sequence if last is not None else 0
            if int(expected) != number:
                raise _wrong_last(number)
        id_ = headers.get("Nats-Msg-Id", "")
        if id_ and id_ in self.ids:
            return self.ids[id_], None
        self.last += 1
        kept = Kept(self.last, subject, payload, headers, time_ns)
        if not self.messages:
            self.first = self.last
        self.messages[self.last] = kept
        numbers = self.by_subject.setdefault(subject, [])
        numbers.append(self.last)
        if id_:
            self.ids[id_] = self.last
        if "Nats-Rollup" in headers:
            self._remove(numbers[:-1])
        elif self.most_per_subject and len(numbers) > self.most_per_subject:
            self._remove(numbers[: -self.most_per_subject])
        return self.last, kept

    def purge(self, below: int = 0, subject: str = "") -> None:
        """Remove messages below a number, of a subject, or all."""
        if subject:
            self._remove(list(self.by_subject.get(subject, ())))
            return
        below = below or self.last + 1
        if below > self.last + 1:
            self.last = below - 1  # the server moves the end when it is told of one beyond
        self._remove([number for number in self.messages if number < below])

    def lose_tail(self, count: int) -> None:
        """The last messages never reached the disk, nor did that they were there."""
        for number in sorted(self.messages)[max(0, len(self.messages) - count) :]:
            self._drop(number)
        self.last = max(self.messages, default=max(0, self.last - count))
        self.ids = {id_: number for id_, number in self.ids.items() if number <= self.last}
        self._find_first()

    def expired(self, now_ns: int) -> list[Kept]:
        """Remove what is too old, and tell what it was."""
        old: list[Kept] = []
        if self.max_age_ns:
            for kept in self.messages.values():
                if now_ns - kept.time_ns < self.max_age_ns:
                    break
                old.append(kept)
            self._remove([kept.sequence for kept in old])
        return old

    def replace(self, kept: Kept) -> None:
        """Damage a message in place."""
        self.messages[kept.sequence] = kept

    def _remove(self, numbers: list[int]) -> None:
        for number in numbers:
            self._drop(number)
        self._find_first()

    def _drop(self, number: int) -> None:
        kept = self.messages.pop(number)
        of_subject = self.by_subject[kept.subject]
        of_subject.remove(number)
        if not of_subject:
            del self.by_subject[kept.subject]

    def _find_first(self) -> None:
        self.first = next(iter(self.messages), self.last + 1)


def _wrong_last(number: int) -> RefusedError:
    return RefusedError(400, WRONG_LAST_SEQUENCE, f"wrong last sequence: {number}")
