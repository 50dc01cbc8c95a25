"""The log as NATS JetStream keeps it: the only place that knows NATS.

`Log` is a process's connection. `publisher.publish` stores a message or says why not; readers deliver
a stream in order from a position or report it as lost; buckets hold what there is one of; objects
hold snapshots; assets declares every stream and bucket there is. Names come from `subjects`.
"""

from __future__ import annotations

from inferencecache.core.log.assets import ensure_assets, ensure_layout, read_layout, wait_for_layout
from inferencecache.core.log.buckets import Bucket, Entry, Gone, Watch
from inferencecache.core.log.connection import Log, NotConnectedError, Subscription
from inferencecache.core.log.inbox import Message, NoAnswerError
from inferencecache.core.log.jetstream import ApiError, NoStreamError, finds_no_stream
from inferencecache.core.log.members import read_members
from inferencecache.core.log.objects import ObjectDamagedError, ObjectMissingError, Objects, StoredObject
from inferencecache.core.log.publisher import (
    NotStoredError,
    PayloadTooLargeError,
    PubAck,
    Publisher,
    WrongLastSequenceError,
)
from inferencecache.core.log.reader import Reader, Start, StreamMessage

__all__ = [
    "ApiError",
    "Bucket",
    "Entry",
    "Gone",
    "Log",
    "Message",
    "NoAnswerError",
    "NoStreamError",
    "NotConnectedError",
    "NotStoredError",
    "ObjectDamagedError",
    "ObjectMissingError",
    "Objects",
    "PayloadTooLargeError",
    "PubAck",
    "Publisher",
    "Reader",
    "Start",
    "StoredObject",
    "StreamMessage",
    "Subscription",
    "Watch",
    "WrongLastSequenceError",
    "ensure_assets",
    "ensure_layout",
    "finds_no_stream",
    "read_layout",
    "read_members",
    "wait_for_layout",
]
