"""The log as NATS JetStream keeps it: the only place that knows NATS.

`Log` is a process's connection. `publisher.publish` stores a message or says why not; readers deliver
a stream in order from a position or report it as lost; buckets hold what there is one of; objects
hold snapshots; assets declares every stream and bucket there is. Names come from `subjects`.
"""

from __future__ import annotations

from inferencecache.core.log.connection import Log, NotConnectedError, Subscription
from inferencecache.core.log.inbox import Message, NoAnswerError
from inferencecache.core.log.publisher import (
    NotStoredError,
    PayloadTooLargeError,
    PubAck,
    Publisher,
    WrongLastSequenceError,
)

__all__ = [
    "Log",
    "Message",
    "NoAnswerError",
    "NotConnectedError",
    "NotStoredError",
    "PayloadTooLargeError",
    "PubAck",
    "Publisher",
    "Subscription",
    "WrongLastSequenceError",
]
