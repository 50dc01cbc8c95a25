"""What a message of an events stream says: who sent it, by its subject, and its batch."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from inferencecache.core.index.fold import LogMessage
from inferencecache.core.log.subjects import UnknownSubjectError, parse_subject
from inferencecache.schemas.positions import Position
from inferencecache.schemas.records import UndecodableBatchError, decode_batch
from inferencecache.schemas.senders import ControlSender, Sender

_NOBODY: Final = ControlSender("r")
"""Stands for the sender of a message that is dropped anyway."""


def log_message(subject: str, payload: bytes, position: Position) -> LogMessage:
    """The message as the fold takes it; what cannot be read is dropped there and counted."""
    try:
        return LogMessage(position, _sender(subject), decode_batch(payload))
    except (UnknownSubjectError, UndecodableBatchError):
        return LogMessage(position, _NOBODY, None)


@lru_cache(maxsize=8192)
def _sender(subject: str) -> Sender:
    return parse_subject(subject)[2]
