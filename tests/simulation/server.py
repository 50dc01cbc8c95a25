"""A NATS server in memory: core subjects, JetStream's API, pull consumers, and what can happen to it.

It handles messages one after the other as they arrive on its connections, and its answers leave at once;
how long both are on the way is the connections' business (`client`).
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tests.simulation.loop import SimulatedLoop
from tests.simulation.streams import Kept, RefusedError, Stream

if TYPE_CHECKING:
    from tests.simulation.client import Connection, SimulatedSubscription

EPOCH_NS = 1_700_000_000 * 10**9
_SECOND_NS = 10**9
_JSON = msgspec.json.Encoder()


class WireMessage(NamedTuple):
    """A message as a client gets it."""

    subject: str
    data: bytes
    reply: str = ""
    headers: dict[str, str] | None = None


class Interest(NamedTuple):
    """Somebody who hears a subject."""

    connection: Connection
    subscription: SimulatedSubscription


class _Pull:
    """An unanswered request for messages."""

    def __init__(self, inbox: str, batch: int, ends_at: float, heartbeat_s: float) -> None:
        self.inbox = inbox
        self.left = batch
        self.ends_at = ends_at
        self.heartbeat_s = heartbeat_s


class _Consumer:
    def __init__(self, server: Server, stream: Stream, config: dict[str, Any]) -> None:
        self.name: str = config["name"]
        self._server = server
        self._stream = stream
        self._pattern: str = config.get("filter_subject", "")
        if self._pattern in (">", *stream.config["subjects"]):
            self._pattern = ""
        self._delivered = 0
        self._pulls: deque[_Pull] = deque()
        self._sent_at = 0.0
        self._beating = False
        self._first: deque[int] = deque()
        if config["deliver_policy"] == "last_per_subject":
            self._first.extend(sorted(stream.by_subject[subject][-1] for subject in self._subjects()))
            self._next = stream.last + 1
        else:
            self._next = int(config["opt_start_seq"])

    def _subjects(self) -> list[str]:
        return list(self._stream.matching(self._pattern or ">") if self._pattern else self._stream.by_subject)

    @property
    def pending(self) -> int:
        stream = self._stream
        waiting = sum(number in stream.messages for number in self._first)
        if self._pattern:
            return waiting + sum(
                number >= self._next
                for subject in stream.matching(self._pattern)
                for number in stream.by_subject[subject]
            )
        if stream.messages and len(stream.messages) == stream.last - stream.first + 1:
            return waiting + max(0, stream.last - max(self._next, stream.first) + 1)
        return waiting + sum(number >= self._next for number in stream.messages)

    def ask(self, inbox: str, request: dict[str, Any]) -> None:
        now = self._server.loop.time()
        heartbeat_s = request["idle_heartbeat"] / _SECOND_NS
        self._pulls.append(_Pull(inbox, request["batch"], now + request["expires"] / _SECOND_NS, heartbeat_s))
        self.pump()
        if not self._beating:
            self._beating = True
            self._sent_at = now
            self._server.later(heartbeat_s, self._beat)

    def pump(self) -> None:
        """Answer requests for as long as there are messages."""
        while self._pulls:
            kept = self._take()
            if kept is None:
                return
            pull = self._pulls[0]
            self._delivered += 1
            pull.left -= 1
            if not pull.left:
                self._pulls.popleft()
            self._sent_at = self._server.loop.time()
            reply = (
                f"$JS.ACK.{self._stream.name}.{self.name}.1.{kept.sequence}.{self._delivered}"
                f".{kept.time_ns}.{self.pending}"
            )
            self._server.deliver(
                pull.inbox, WireMessage(kept.subject, kept.payload, reply, dict(kept.headers) or None)
            )

    def end(self, description: str) -> None:
        for pull in self._pulls:
            self._status(pull, "409", description)
        self._pulls.clear()

    def _take(self) -> Kept | None:
        stream = self._stream
        while self._first:
            kept = stream.messages.get(self._first.popleft())
            if kept is not None:
                return kept
        self._next = max(self._next, stream.first)
        while self._next <= stream.last:
            kept = stream.messages.get(self._next)
            self._next += 1
            if kept is not None and (not self._pattern or kept.subject == self._pattern):
                return kept
        return None

    def _beat(self) -> None:
        now = self._server.loop.time()
        while self._pulls and (
            self._pulls[0].ends_at <= now or not self._server.is_heard(self._pulls[0].inbox)
        ):
            self._status(self._pulls.popleft(), "408", "Request Timeout")
        if not self._pulls:
            self._beating = False
            return
        pull = self._pulls[0]
        if now - self._sent_at >= pull.heartbeat_s:
            self._server.deliver(
                pull.inbox,
                WireMessage(pull.inbox, b"", headers={"Status": "100", "Description": "Idle Heartbeat"}),
            )
            self._sent_at = now
        self._server.later(pull.heartbeat_s, self._beat)

    def _status(self, pull: _Pull, status: str, description: str) -> None:
        headers = {"Status": status, "Description": description, "Nats-Pending-Messages": str(pull.left)}
        self._server.deliver(pull.inbox, WireMessage(pull.inbox, b"", headers=headers))


class Server:
    """The server as it runs now. What it stores outlives `stop`; a `start` may find something else there."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.up = True
        self.life = 0
        self.clock_ns = 0
        """How far the server's clock is off."""
        self.streams: dict[str, Stream] = {}
        self.connections: list[Connection] = []
        self.on_stored: Callable[[Stream, Kept], None] = lambda stream, kept: None
        self.on_purged: Callable[[Stream, int], None] = lambda stream, below: None
        self._exact: dict[str, list[Interest]] = {}
        self._consumers: dict[str, dict[str, _Consumer]] = {}
        self._routes: dict[str, Stream | None] = {}
        self._created = 0
        self.later(1.0, self._expire)

    def now_ns(self) -> int:
        return EPOCH_NS + int(self.loop.time() * 1e9) + self.clock_ns

    def later(self, after_s: float, callback: Callable[[], None]) -> None:
        """Call back unless the server has been stopped meanwhile."""
        life = self.life
        self.loop.call_in(
            None, self.loop.time() + after_s, lambda: callback() if self.up and self.life == life else None
        )

    # -- connections ---------------------------------------------------------------------------------

    def subscribed(self, interest: Interest) -> None:
        self._exact.setdefault(interest.subscription.subject, []).append(interest)

    def unsubscribed(self, interest: Interest) -> None:
        heard_by = self._exact.get(interest.subscription.subject, [])
        if interest in heard_by:
            heard_by.remove(interest)
            if not heard_by:
                del self._exact[interest.subscription.subject]

    def disconnected(self, connection: Connection) -> None:
        for subject, heard_by in list(self._exact.items()):
            heard_by[:] = [each for each in heard_by if each.connection is not connection]
            if not heard_by:
                del self._exact[subject]

    def _interests(self, subject: str) -> list[Interest]:
        exact = self._exact.get(subject)
        if exact is not None:
            return exact
        return self._exact.get(subject.rpartition(".")[0] + ".*", [])

    def is_heard(self, subject: str) -> bool:
        return bool(self._interests(subject))

    def deliver(self, subject: str, message: WireMessage) -> None:
        for connection, subscription in list(self._interests(subject)):
            connection.down(subscription, message)

    # -- messages ------------------------------------------------------------------------------------

    def published(self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str]) -> None:
        """A message has arrived."""
        if subject.startswith("$JS.API."):
            self._request(subject[8:], payload, reply)
            return
        stream = self._stream_of(subject)
        if stream is not None:
            answer = self._store(stream, subject, payload, headers)
            self.deliver(subject, WireMessage(subject, payload, reply, dict(headers) or None))
            if reply:
                self.deliver(reply, WireMessage(reply, _JSON.encode(answer)))
        elif self.is_heard(subject):
            self.deliver(subject, WireMessage(subject, payload, reply, dict(headers) or None))
        elif reply:
            self.deliver(reply, WireMessage(reply, b"", headers={"Status": "503"}))

    def _stream_of(self, subject: str) -> Stream | None:
        try:
            return self._routes[subject]
        except KeyError:
            found = None
            for stream in self.streams.values():
                for pattern in stream.config["subjects"]:
                    if pattern == subject or (pattern.endswith(">") and subject.startswith(pattern[:-1])):
                        found = stream
            self._routes[subject] = found
            return found

    def _store(
        self, stream: Stream, subject: str, payload: bytes, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        try:
            sequence, kept = stream.store(subject, payload, headers, self.now_ns())
        except RefusedError as error:
            failure = {"code": error.code, "err_code": error.err_code, "description": str(error)}
            return {"stream": stream.name, "error": failure}
        if kept is None:
            return {"stream": stream.name, "seq": sequence, "duplicate": True}
        self.on_stored(stream, kept)
        for consumer in self._consumers.get(stream.name, {}).values():
            consumer.pump()
        return {"stream": stream.name, "seq": sequence}

    def _expire(self) -> None:
        for stream in self.streams.values():
            if stream.is_in_memory:
                for kept in stream.expired(self.now_ns()):
                    marker = "Nats-Marker-Reason" in kept.headers
                    if not marker and kept.subject not in stream.by_subject:
                        self._store(stream, kept.subject, b"", {"Nats-Marker-Reason": "MaxAge"})
        self.later(1.0, self._expire)

    # -- JetStream's API -----------------------------------------------------------------------------

    def _request(self, request: str, payload: bytes, reply: str) -> None:
        body: dict[str, Any] = msgspec.json.decode(payload) if payload else {}
        if request.startswith("CONSUMER.MSG.NEXT."):
            _, _, _, stream_name, name = request.split(".")
            consumer = self._consumers.get(stream_name, {}).get(name)
            if consumer is not None:
                consumer.ask(reply, body)
            elif reply:
                self.deliver(reply, WireMessage(reply, b"", headers={"Status": "503"}))
            return
        verb, _, rest = request.partition(".")
        if verb == "DIRECT":
            self._direct(rest.partition(".")[2], body, reply)
            return
        answer = self._answer(request, body)
        if reply:
            self.deliver(reply, WireMessage(reply, _JSON.encode(answer)))

    def _answer(self, request: str, body: dict[str, Any]) -> dict[str, Any]:
        if request == "INFO":
            return {"storage": 0, "limits": {"max_memory": -1, "max_storage": -1}}
        if request == "STREAM.NAMES":
            names = sorted(self.streams)
            return {"total": len(names), "offset": 0, "limit": len(names) or 1, "streams": names}
        kind, verb, name, *rest = request.split(".")
        if kind == "STREAM" and verb == "MSG":
            verb, name = "MSG.GET", rest[0]
        stream = self.streams.get(name)
        if kind == "STREAM" and verb == "CREATE":
            if stream is not None and stream.config != body:
                return _error(400, 10058, "stream name already in use with a different configuration")
            return _info(stream or self._create(body))
        if stream is None:
            return _error(404, 10059, "stream not found")
        match kind, verb:
            case "STREAM", "INFO":
                return _info(stream, body.get("subjects_filter", ""))
            case "STREAM", "PURGE":
                self.on_purged(stream, body.get("seq", 0))
                stream.purge(body.get("seq", 0), body.get("filter", ""))
                return {"success": True}
            case "STREAM", "DELETE":
                self.delete(name)
                return {"success": True}
            case "STREAM", "MSG.GET":
                kept = stream.last_of(body["last_by_subj"]) if "last_by_subj" in body else None
                kept = kept or stream.messages.get(body.get("seq", 0))
                return {"message": _shown(kept)} if kept else _error(404, 10037, "no message found")
            case "CONSUMER", "CREATE":
                consumer = _Consumer(self, stream, body["config"])
                self._consumers.setdefault(name, {})[consumer.name] = consumer
                return {"name": consumer.name, "num_pending": consumer.pending}
            case "CONSUMER", "DELETE":
                self._consumers.get(name, {}).pop(rest[0], None)
                return {"success": True}
            case _:
                return _error(400, 10003, f"this server does not know {request}")

    def _direct(self, name: str, body: dict[str, Any], reply: str) -> None:
        stream = self.streams.get(name)
        if stream is None:
            self.deliver(reply, WireMessage(reply, b"", headers={"Status": "503"}))
            return
        numbers = stream.by_subject.get(body["next_by_subj"], [])
        number = next((each for each in numbers if each >= body["seq"]), 0)
        if not number:
            headers = {"Status": "404", "Description": "Message Not Found"}
            self.deliver(reply, WireMessage(reply, b"", headers=headers))
            return
        kept = stream.messages[number]
        headers = dict(kept.headers) | {
            "Nats-Stream": name,
            "Nats-Subject": kept.subject,
            "Nats-Sequence": str(number),
            "Nats-Time-Stamp": _rfc3339(kept.time_ns),
        }
        self.deliver(reply, WireMessage(reply, kept.payload, headers=headers))

    def _create(self, config: dict[str, Any]) -> Stream:
        self._created += 1
        stream = Stream(config, self.now_ns() + self._created)
        self.streams[stream.name] = stream
        self._routes.clear()
        return stream

    def delete(self, name: str) -> None:
        """Delete a stream with all it holds."""
        for consumer in self._consumers.pop(name, {}).values():
            consumer.end("Consumer Deleted")
        del self.streams[name]
        self._routes.clear()

    # -- its life ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The process is killed: connections, consumers and what is in memory are gone."""
        self.up = False
        self.life += 1
        self._exact.clear()
        self._consumers.clear()
        self._routes.clear()
        self.streams = {name: each for name, each in self.streams.items() if not each.is_in_memory}
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.broken()

    def replace_storage(self, streams: dict[str, Stream]) -> None:
        """While it is down: its disk holds this instead."""
        self.streams = {name: each.copy() for name, each in streams.items() if not each.is_in_memory}

    def start(self) -> None:
        """A process begins with what is on its disk."""
        self.up = True
        self.later(1.0, self._expire)


def _error(code: int, err_code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": err_code, "description": description}}


def _info(stream: Stream, subjects: str = "") -> dict[str, Any]:
    state: dict[str, Any] = {
        "messages": len(stream.messages),
        "first_seq": stream.first,
        "last_seq": stream.last,
    }
    if subjects:
        state["subjects"] = {each: len(stream.by_subject[each]) for each in stream.matching(subjects)}
    return {"config": stream.config, "state": state, "created": _rfc3339(stream.created_ns)}


def _shown(kept: Kept) -> dict[str, Any]:
    shown = {
        "subject": kept.subject,
        "seq": kept.sequence,
        "time": _rfc3339(kept.time_ns),
        "data": base64.b64encode(kept.payload).decode(),
    }
    if kept.headers:
        lines = "".join(f"{name}: {value}\r\n" for name, value in kept.headers.items())
        shown["hdrs"] = base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()
    return shown


def _rfc3339(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, _SECOND_NS)
    return f"{_whole_seconds(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=256)
def _whole_seconds(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
