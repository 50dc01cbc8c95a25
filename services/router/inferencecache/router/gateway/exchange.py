"""The external processing protocol of one HTTP request: messages in, messages out, no I/O.

A proxy sends a body whole, in pieces that each wait for an answer, or in pieces that are sent back as they
are to go on. Where headers wait for the body, the choice is made by all of it; where they do not, by the
headers alone, since an answer to a later piece cannot change where the request goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from google.protobuf.struct_pb2 import Struct, Value

from inferencecache.extproc.external_processor_pb2 import (
    BUFFERED_PARTIAL,
    FULL_DUPLEX_STREAMED,
    GRPC,
    NONE,
    STREAMED,
    BodyMutation,
    BodyResponse,
    BodySendMode,
    CommonResponse,
    HeaderMap,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpBody,
    HttpStatus,
    ImmediateResponse,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)

DESTINATION: Final = "x-gateway-destination-endpoint"
SERVED: Final = "x-gateway-destination-endpoint-served"
SUBSET: Final = "x-gateway-destination-endpoint-subset"
BALANCER: Final = "envoy.lb"
"""The namespace of metadata that a load balancer reads, and where it tells who served."""
SUBSET_HINT: Final = "envoy.lb.subset_hint"
REASON_HEADER: Final = "x-inferencecache-reason"
REPLICA_HEADER: Final = "x-inferencecache-replica"
PIECE_BYTES: Final = 62 * 1024
"""Proxies advise against pieces of 64 KiB and more."""
_STREAMING: Final = frozenset({FULL_DUPLEX_STREAMED, GRPC})


class Asked(NamedTuple):
    """What there is to choose by. `is_whole` is false where the body is longer than what is here, `size`
    is how much of it came; `subset` are the addresses that the proxy allows, if it limits them.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    size: int = 0
    is_whole: bool = True
    subset: frozenset[str] | None = None


class Chosen(NamedTuple):
    """Where a request goes: `addresses` as proxies read them, empty for nowhere in particular.

    `is_refused`: the proxy is to answer that nobody is there. `reason` and the `replicas` at the addresses
    are for people.
    """

    addresses: str
    reason: str
    replicas: Sequence[str] = ()
    is_refused: bool = False

    def replica_at(self, served: str) -> str:
        """Who served, by address; the first choice where the proxy does not tell."""
        at = dict(zip(self.addresses.split(","), self.replicas, strict=False))
        return at.get(served, "") if served else next(iter(self.replicas), "")


class Answered(NamedTuple):
    """What came back from an engine; `served` is its address where the proxy tells it."""

    status: int
    served: str = ""


class Exchange:
    """One request. After each `take`, `asked` is set when `choose` is to be called next, and `answered`
    when the engine's answer began.
    """

    def __init__(self, body_limit: int, *, shows_reasons: bool = False) -> None:
        self.asked: Asked | None = None
        self.answered: Answered | None = None
        self._body_limit = body_limit
        self._shows_reasons = shows_reasons
        self._mode: BodySendMode.ValueType = NONE
        self._response_mode: BodySendMode.ValueType = NONE
        self._headers: Mapping[str, str] = {}
        self._subset: frozenset[str] | None = None
        self._pieces: list[HttpBody] = []
        self._size = 0
        self._chosen: Chosen | None = None
        self._answers_headers = False
        self._trailers_wait = False

    def take(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        """One message of the proxy; what to answer at once."""
        self.answered = None
        if message.observability_mode:
            return []
        match message.WhichOneof("request"):
            case "request_headers":
                return self._request_headers(message)
            case "request_body":
                return self._request_body(message.request_body)
            case "request_trailers":
                return self._request_trailers()
            case "response_headers":
                return self._response_headers(message)
            case "response_body":
                answer = _passed_on(message.response_body, self._response_mode)
                return [ProcessingResponse(response_body=answer)]
            case "response_trailers":
                return [ProcessingResponse(response_trailers=TrailersResponse())]
            case _:
                return []

    def choose(self, chosen: Chosen) -> list[ProcessingResponse]:
        """The choice for `asked`; what to answer by it to all that waits."""
        self.asked = None
        self._chosen = chosen
        if chosen.is_refused:
            return [_unavailable(chosen)]
        common = CommonResponse(header_mutation=_destination(chosen), clear_route_cache=True)
        metadata = _metadata(chosen)
        if self._answers_headers:
            answers = [
                ProcessingResponse(
                    request_headers=HeadersResponse(response=common), dynamic_metadata=metadata
                )
            ]
            answers += [
                ProcessingResponse(request_body=answer)
                for piece in self._pieces
                for answer in self._on(piece)
            ]
        else:
            answers = [
                ProcessingResponse(request_body=BodyResponse(response=common), dynamic_metadata=metadata)
            ]
        self._pieces.clear()
        if self._trailers_wait:
            answers.append(ProcessingResponse(request_trailers=TrailersResponse()))
        return answers

    @property
    def held(self) -> int:
        """Bytes of a body that waits for the choice."""
        return self._size if self._pieces else 0

    def wait_no_longer(self) -> None:
        """Let what waits be chosen for by as much as came of it."""
        if self._pieces and self._chosen is None and self.asked is None:
            self._ask(is_whole=False)

    # -- the request -------------------------------------------------------------------------------

    def _request_headers(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        self._headers = _texts(message.request_headers.headers)
        self._subset = _subset(message.metadata_context)
        config = message.protocol_config
        # A proxy that does not tell its mode sends the body whole, or none.
        self._mode, self._response_mode = config.request_body_mode, config.response_body_mode
        waits = self._mode in _STREAMING or (
            self._mode == STREAMED and config.send_body_without_waiting_for_header_response
        )
        is_told = message.HasField("protocol_config")
        has_no_body = message.request_headers.end_of_stream or (is_told and self._mode == NONE)
        self._answers_headers = waits or has_no_body or self._mode == STREAMED
        if has_no_body or (self._mode == STREAMED and not waits):
            self._ask(is_whole=has_no_body)
            return []
        if waits:
            return []
        return [ProcessingResponse(request_headers=HeadersResponse())]

    def _request_body(self, piece: HttpBody) -> list[ProcessingResponse]:
        if self._chosen is not None or self.asked is not None:
            return [ProcessingResponse(request_body=answer) for answer in self._on(piece)]
        self._pieces.append(piece)
        self._size += len(piece.body)
        if piece.end_of_stream or self._size > self._body_limit or not self._answers_headers:
            self._ask(is_whole=piece.end_of_stream or self._mode != BUFFERED_PARTIAL)
        return []

    def _request_trailers(self) -> list[ProcessingResponse]:
        if self._chosen is None and self.asked is None and self._answers_headers:
            self._trailers_wait = True
            self._ask(is_whole=True)
            return []
        return [ProcessingResponse(request_trailers=TrailersResponse())]

    def _ask(self, *, is_whole: bool) -> None:
        is_whole = is_whole and self._size <= self._body_limit
        body = b"".join(piece.body for piece in self._pieces) if is_whole else b""
        path = self._headers.get(":path", "")
        self.asked = Asked(path, self._headers, body, self._size, is_whole, self._subset)

    def _on(self, piece: HttpBody) -> Iterator[BodyResponse]:
        """What sends a piece of the request on as it is."""
        if self._mode not in _STREAMING:
            yield BodyResponse()
            return
        starts = range(0, len(piece.body), PIECE_BYTES) or range(1)
        for start in starts:
            part = piece.body[start : start + PIECE_BYTES]
            is_last = start + PIECE_BYTES >= len(piece.body)
            yield _streamed(part, end_of_stream=is_last and piece.end_of_stream)

    # -- the answer --------------------------------------------------------------------------------

    def _response_headers(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        status = _texts(message.response_headers.headers).get(":status", "")
        served = _text(_field(message.metadata_context, BALANCER, SERVED))
        self.answered = Answered(int(status) if status.isdecimal() else 0, served)
        response = HeadersResponse()
        if self._shows_reasons and self._chosen is not None:
            shown = {REASON_HEADER: self._chosen.reason, REPLICA_HEADER: self._chosen.replica_at(served)}
            response.response.header_mutation.CopyFrom(_set({k: v for k, v in shown.items() if v}))
        return [ProcessingResponse(response_headers=response)]


def _passed_on(piece: HttpBody, mode: BodySendMode.ValueType) -> BodyResponse:
    return _streamed(piece.body, end_of_stream=piece.end_of_stream) if mode in _STREAMING else BodyResponse()


def _streamed(body: bytes, *, end_of_stream: bool) -> BodyResponse:
    piece = StreamedBodyResponse(body=body, end_of_stream=end_of_stream)
    return BodyResponse(response=CommonResponse(body_mutation=BodyMutation(streamed_response=piece)))


def _unavailable(chosen: Chosen) -> ProcessingResponse:
    return ProcessingResponse(
        immediate_response=ImmediateResponse(
            status=HttpStatus(code=HTTPStatus.SERVICE_UNAVAILABLE),
            body=b"no endpoint is ready\n",
            details=chosen.reason,
        )
    )


def _destination(chosen: Chosen) -> HeaderMutation:
    """The header that names the endpoint, or takes away what a client set there itself."""
    if not chosen.addresses:
        return HeaderMutation(remove_headers=[DESTINATION])
    return _set({DESTINATION: chosen.addresses})


def _set(headers: Mapping[str, str]) -> HeaderMutation:
    return HeaderMutation(
        set_headers=[
            HeaderValueOption(
                header=HeaderValue(key=name, raw_value=value.encode()),
                append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
            )
            for name, value in headers.items()
        ]
    )


def _metadata(chosen: Chosen) -> Struct | None:
    """The same value as in the header: a proxy may follow either [the protocol forbids two]."""
    if not chosen.addresses:
        return None
    destination = Struct(fields={DESTINATION: Value(string_value=chosen.addresses)})
    return Struct(fields={BALANCER: Value(struct_value=destination)})


def _texts(headers: HeaderMap) -> dict[str, str]:
    """Headers by name; of one that comes several times the last."""
    return {each.key: each.raw_value.decode("latin-1") or each.value for each in headers.headers}


def _field(metadata: Metadata, namespace: str, name: str) -> Value | None:
    struct = metadata.filter_metadata.get(namespace)
    return None if struct is None else struct.fields.get(name)


def _text(value: Value | None) -> str:
    return "" if value is None else value.string_value


def _subset(metadata: Metadata) -> frozenset[str] | None:
    """The addresses that a proxy allows, as a list or separated by commas; `None` when it names none."""
    value = _field(metadata, SUBSET_HINT, SUBSET)
    if value is None:
        return None
    texts: Sequence[str] = [each.string_value for each in value.list_value.values]
    if value.WhichOneof("kind") == "string_value":
        texts = value.string_value.split(",")
    return frozenset(filter(None, map(str.strip, texts)))
