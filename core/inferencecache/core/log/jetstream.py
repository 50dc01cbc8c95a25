"""The part of the JetStream API that the log uses, typed, with nanoseconds kept.

Every request may be asked twice (a reconnect repeats it): creating what exists, deleting what is gone
and purging what is purged change nothing. Names are the server's.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from inferencecache.core.log.connection import Log
from inferencecache.core.log.inbox import Message
from inferencecache.core.log.publisher import NotStoredError
from inferencecache.schemas.unreadable import UNREADABLE

TIMEOUT_S: Final = 5.0
STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
NAME_IN_USE: Final = 10058
"""A stream of that name exists with another configuration."""
INSUFFICIENT_STORAGE: Final = 10047
NOT_CLUSTERED: Final = 10074
"""More than one replica was asked of a server that is alone."""
NO_PEERS: Final = 10005
"""The cluster has not as many servers running as replicas were asked for."""
_NO_MESSAGE: Final = 10037

T = TypeVar("T")
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


class ApiError(Exception):
    """The server refused; `err_code` is JetStream's own number."""

    def __init__(self, request: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{request}: {description} ({err_code})")
        self.request = request
        self.code = code
        self.err_code = err_code
        self.description = description


class NoStreamError(ApiError):
    """The stream does not exist."""


def finds_no_stream(error: Exception) -> bool:
    """Was it for want of a stream that something could not be read or stored?"""
    return isinstance(error, NoStreamError) or (isinstance(error, NotStoredError) and error.no_stream)


class StreamState(msgspec.Struct):
    """`first_seq` is last_seq + 1 in an empty stream that once held messages, 0 in a new one."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    consumer_count: int = 0
    subjects: dict[str, int] | None = None


class StreamInfo(msgspec.Struct):
    config: dict[str, Any]
    state: StreamState
    created: str = ""
    ts: str = ""

    @property
    def asked_ns(self) -> int:
        """When the server answered, by its own clock."""
        return nanoseconds(self.ts)

    @property
    def created_ns(self) -> int:
        """When the stream was created, in nanoseconds since the Unix epoch."""
        return nanoseconds(self.created)


class _StreamNames(msgspec.Struct):
    total: int = 0
    streams: list[str] | None = None


class ConsumerInfo(msgspec.Struct):
    name: str
    num_pending: int = 0


class AccountLimits(msgspec.Struct):
    max_memory: int = -1
    max_storage: int = -1


class AccountInfo(msgspec.Struct):
    """Bytes; a limit of -1 is none."""

    storage: int = 0
    reserved_storage: int = 0
    limits: AccountLimits = msgspec.field(default_factory=AccountLimits)


class StoredMessage(msgspec.Struct):
    """One message of a stream, read by its number or as the last of its subject."""

    subject: str
    sequence: int
    time_ns: int
    payload: bytes
    headers: dict[str, str]


class _Failure(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Outcome(msgspec.Struct):
    error: _Failure | None = None


class _RawMessage(msgspec.Struct):
    subject: str
    seq: int
    time: str
    data: str = ""
    hdrs: str = ""


class _MessageAnswer(msgspec.Struct):
    message: _RawMessage


_outcomes = msgspec.json.Decoder(_Outcome)


def nanoseconds(rfc3339: str) -> int:
    """Nanoseconds since the Unix epoch of a server's timestamp; 0 for what is none."""
    match = _RFC3339.fullmatch(rfc3339)
    if match is None:
        return 0
    zone = "+00:00" if match[3] == "Z" else match[3]
    seconds = int(datetime.fromisoformat(match[1] + zone).astimezone(UTC).timestamp())
    return seconds * 1_000_000_000 + int((match[2] or "0")[:9].ljust(9, "0"))


async def call(log: Log, request: str, body: object, answer: type[T], *, timeout_s: float = TIMEOUT_S) -> T:
    """One API request. Raises ApiError, NoStreamError, NoAnswerError."""
    payload = b"" if body is None else msgspec.json.encode(body)
    message = await log.request(f"$JS.API.{request}", payload, timeout_s=timeout_s, patient=True)
    try:
        failure = _outcomes.decode(message.data).error
        if failure is None:
            return msgspec.json.decode(message.data, type=answer)
    except UNREADABLE as error:
        raise ApiError(request, 500, 0, f"unreadable answer: {error}") from None
    kind = NoStreamError if failure.err_code == STREAM_NOT_FOUND else ApiError
    raise kind(request, failure.code, failure.err_code, failure.description)


async def stream_info(
    log: Log, stream: str, *, subjects: str = "", timeout_s: float = TIMEOUT_S
) -> StreamInfo:
    """State and configuration; with a `subjects` filter also the number of messages by subject."""
    body = {"subjects_filter": subjects} if subjects else None
    return await call(log, f"STREAM.INFO.{stream}", body, StreamInfo, timeout_s=timeout_s)


async def stream_names(log: Log) -> list[str]:
    """The names of all streams of the account."""
    names: list[str] = []
    while True:
        page = await call(log, "STREAM.NAMES", {"offset": len(names)}, _StreamNames)
        names += page.streams or ()
        if not page.streams or len(names) >= page.total:
            return names


async def create_stream(log: Log, config: dict[str, Any]) -> StreamInfo:
    """Create it, or find it as it is. ApiError NAME_IN_USE: it exists otherwise."""
    return await call(log, f"STREAM.CREATE.{config['name']}", config, StreamInfo)


async def update_stream(log: Log, config: dict[str, Any]) -> StreamInfo:
    return await call(log, f"STREAM.UPDATE.{config['name']}", config, StreamInfo)


async def delete_stream(log: Log, stream: str) -> None:
    await call(log, f"STREAM.DELETE.{stream}", None, _Outcome)


async def purge_stream(log: Log, stream: str, *, below: int = 0, subject: str = "") -> None:
    """Remove messages: those below a sequence (which itself stays), those of a subject, or all.

    A purge beyond the end would move the last sequence: the caller knows the end.
    """
    body: dict[str, Any] = {}
    if below:
        body["seq"] = below
    if subject:
        body["filter"] = subject
    await call(log, f"STREAM.PURGE.{stream}", body or None, _Outcome)


async def account_info(log: Log) -> AccountInfo:
    return await call(log, "INFO", None, AccountInfo)


async def create_consumer(log: Log, stream: str, config: dict[str, Any]) -> ConsumerInfo:
    request = f"CONSUMER.CREATE.{stream}.{config['name']}"
    if config.get("filter_subject", ">") != ">":
        request += f".{config['filter_subject']}"
    return await call(log, request, {"stream_name": stream, "config": config}, ConsumerInfo)


async def delete_consumer(log: Log, stream: str, name: str) -> None:
    """Sent without waiting for the answer: one that is not deleted ends by itself when nobody reads."""
    await log.send(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")


async def read_message(
    log: Log, stream: str, *, sequence: int = 0, last_of: str = "", timeout_s: float = TIMEOUT_S
) -> StoredMessage | None:
    """The message with that number, or the last of a subject, from the stream's leader; None: no such one."""
    body = {"seq": sequence} if sequence else {"last_by_subj": last_of}
    try:
        answer = await call(log, f"STREAM.MSG.GET.{stream}", body, _MessageAnswer, timeout_s=timeout_s)
    except ApiError as error:
        if error.err_code == _NO_MESSAGE:
            return None
        raise
    raw = answer.message
    headers = _headers(base64.b64decode(raw.hdrs)) if raw.hdrs else {}
    return StoredMessage(raw.subject, raw.seq, nanoseconds(raw.time), base64.b64decode(raw.data), headers)


async def read_direct(
    log: Log, stream: str, *, sequence: int, next_of: str, timeout_s: float = TIMEOUT_S
) -> StoredMessage | None:
    """The first message of a subject from `sequence` on, from any replica of the stream; None: none yet."""
    body = msgspec.json.encode({"seq": sequence, "next_by_subj": next_of})
    message = await log.request(f"$JS.API.DIRECT.GET.{stream}", body, timeout_s=timeout_s, patient=True)
    headers = message.headers or {}
    status = headers.get("Status", "")
    if status == "404":
        return None
    if status:
        raise ApiError(f"DIRECT.GET.{stream}", int(status), 0, headers.get("Description", ""))
    return _direct(message, headers)


def _direct(message: Message, headers: dict[str, str]) -> StoredMessage:
    return StoredMessage(
        headers.get("Nats-Subject", ""),
        int(headers.get("Nats-Sequence", "0")),
        nanoseconds(headers.get("Nats-Time-Stamp", "")),
        message.data,
        headers,
    )


def _headers(block: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in block.decode("utf-8", "replace").split("\r\n")[1:])
    return {name.strip(): value.strip() for name, colon, value in lines if colon}
