"""What a proxy sends about a request: messages of the external processing protocol, and bodies of the API.

Nothing may raise but what says that there is no prompt. In modes in which pieces are sent back to go on, all
of a body goes on as it came, whatever it holds. Nothing of a body is in what a client or a log is told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from inferencecache.core.gateway import Unreadable, read_prompt
from inferencecache.extproc import external_processor_pb2 as pb
from inferencecache.router.gateway.exchange import Chosen, Exchange
from inferencecache.schemas.unreadable import UNREADABLE
from tests.fuzz.mutation import (
    Message,
    join,
    mutate_bytes,
    mutate_msgpack,
    script_mutation,
    script_parts,
    split,
)
from tests.fuzz.target import Target

_LIMIT: Final = 4096
_MESSAGE: Final = 0
_PATHS: Final = ("", "/v1/completions", "/v1/chat/completions", "/v1/responses")
"""Kind of a message = number of the path that its payload is the body for; the first is a proxy's message."""
_CHOSEN: Final = Chosen("10.0.0.1:1,10.0.0.2:2", "PREFIX_MATCH", ["engine-1", "engine-2"])
_STREAMING: Final = frozenset({pb.FULL_DUPLEX_STREAMED, pb.GRPC})


def _run(data: bytes) -> None:
    exchange = Exchange(_LIMIT, shows_reasons=True)
    sent, passed = b"", b""
    mode: int | None = None
    for kind, payload in split(data):
        if kind % len(_PATHS) != _MESSAGE:
            _read(_PATHS[kind % len(_PATHS)], payload)
            continue
        try:
            message = pb.ProcessingRequest.FromString(payload)
        except DecodeError:
            continue
        which = message.WhichOneof("request")
        if which == "request_headers" and mode is not None:
            break  # another request than this stream's
        if which == "request_headers" and not message.observability_mode:
            mode = message.protocol_config.request_body_mode
        answers = exchange.take(message)
        if exchange.asked is not None:
            _read(exchange.asked.path, exchange.asked.body)
            answers += exchange.choose(_CHOSEN)
            assert exchange.asked is None
        # What comes before headers is of no request.
        if which == "request_body" and mode is not None and not message.observability_mode:
            sent += message.request_body.body
        for answer in answers:
            assert answer.WhichOneof("response") is not None
            answer.SerializeToString()
            passed += answer.request_body.response.body_mutation.streamed_response.body
    if mode in _STREAMING:
        assert sent.startswith(passed), "something went on that did not come"


def _read(path: str, body: bytes) -> None:
    try:
        prompt = read_prompt(path, body)
    except Unreadable:
        return
    assert bool(prompt.token_ids) + bool(prompt.text) + (prompt.chat is not None) == 1


def _bodies() -> list[Message]:
    chat = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": [1]}'}}]},
    ]
    bodies: list[tuple[int, Any]] = [
        (1, {"model": "m", "prompt": "text"}),
        (1, {"model": "m", "prompt": [1, 2, 3], "cache_salt": None}),
        (1, {"prompt": [[1], [2]]}),
        (2, {"model": "m", "messages": chat, "tools": [{}], "chat_template_kwargs": {"a": 1}}),
        (3, {"model": "m", "input": "hi", "instructions": "be brief"}),
        (3, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}),
    ]
    return [Message(kind, json.dumps(body).encode()) for kind, body in bodies]


def _conversation(mode: int) -> list[Message]:
    first = pb.ProcessingRequest()
    first.protocol_config.request_body_mode = mode  # type: ignore[assignment] # any number is legal
    first.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/completions")
    hint = first.metadata_context.filter_metadata["envoy.lb.subset_hint"]
    hint.update({"x-gateway-destination-endpoint-subset": ["10.0.0.1:1"]})
    pieces = [pb.HttpBody(body=b'{"prompt": '), pb.HttpBody(body=b"[1, 2]}", end_of_stream=True)]
    answer = pb.ProcessingRequest()
    answer.response_headers.headers.headers.add(key=":status", raw_value=b"200")
    served = answer.metadata_context.filter_metadata["envoy.lb"]
    served.update({"x-gateway-destination-endpoint-served": "10.0.0.1:1"})
    messages = [first, *(pb.ProcessingRequest(request_body=piece) for piece in pieces), answer]
    return [Message(_MESSAGE, message.SerializeToString()) for message in messages]


def _seeds() -> Sequence[bytes]:
    return [join(_bodies()), *(join(_conversation(mode)) for mode in range(6))]


def _mutated(random: Random, payload: bytes) -> bytes:
    """Another body, by a change of its JSON, or other bytes."""
    try:
        packed = mutate_msgpack(random, msgspec.msgpack.encode(msgspec.json.decode(payload)))
        return msgspec.json.encode(msgspec.msgpack.decode(packed))
    except (*UNREADABLE, TypeError, OverflowError):
        return mutate_bytes(random, payload)


def _kind(random: Random) -> int:
    return random.randrange(len(_PATHS))


TARGET: Final = Target(_run, _seeds, script_mutation(_mutated, _kind), script_parts)
