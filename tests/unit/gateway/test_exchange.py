"""The external processing protocol, message by message, in each way that a proxy sends bodies."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.extproc import external_processor_pb2 as pb
from inferencecache.router.gateway.exchange import PIECE_BYTES, Answered, Asked, Chosen, Exchange

CHOSEN = Chosen("10.0.0.1:8000,10.0.0.2:8000", "PREFIX_MATCH", ["engine-1", "engine-2"])
PATH = "/v1/completions"


def headers(
    mode: int | None = pb.BUFFERED, *, end: bool = False, subset: Any = None, delayed: bool = False
) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    values = {":path": PATH, "x-tenant": "acme"}
    message.request_headers.headers.headers.extend(
        pb.HeaderValue(key=key, raw_value=value.encode()) for key, value in values.items()
    )
    message.request_headers.end_of_stream = end
    if mode is not None:
        config = message.protocol_config
        config.request_body_mode = mode  # type: ignore[assignment]
        config.send_body_without_waiting_for_header_response = delayed
    if subset is not None:
        hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.update({"x-gateway-destination-endpoint-subset": subset})
    return message


def body(content: bytes, *, end: bool = True) -> pb.ProcessingRequest:
    return pb.ProcessingRequest(request_body=pb.HttpBody(body=content, end_of_stream=end))


def status(code: int, served: str = "") -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    message.response_headers.headers.headers.add(key=":status", raw_value=str(code).encode())
    if served:
        told = message.metadata_context.filter_metadata["envoy.lb"]
        told.update({"x-gateway-destination-endpoint-served": served})
    return message


def asked(exchange: Exchange) -> Asked:
    assert exchange.asked is not None
    return exchange.asked


def destination(response: pb.CommonResponse) -> str:
    (option,) = response.header_mutation.set_headers
    assert option.header.key == "x-gateway-destination-endpoint"
    assert option.append_action == pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return option.header.raw_value.decode()


def metadata(response: pb.ProcessingResponse) -> str:
    balancer = response.dynamic_metadata.fields["envoy.lb"].struct_value
    return balancer.fields["x-gateway-destination-endpoint"].string_value


@pytest.mark.parametrize("mode", [pb.BUFFERED, pb.BUFFERED_PARTIAL, None])
def test_a_whole_body_is_chosen_by_and_answered_with_header_and_metadata_alike(mode: int | None) -> None:
    exchange = Exchange(100)
    (first,) = exchange.take(headers(mode))
    assert first.WhichOneof("response") == "request_headers"
    assert exchange.asked is None
    assert exchange.take(body(b"{}")) == []
    assert asked(exchange) == Asked(PATH, {":path": PATH, "x-tenant": "acme"}, b"{}", 2)
    (second,) = exchange.choose(CHOSEN)
    assert destination(second.request_body.response) == CHOSEN.addresses == metadata(second)
    assert second.request_body.response.clear_route_cache
    assert not second.request_body.response.HasField("body_mutation")


def test_without_a_body_the_headers_are_chosen_by() -> None:
    for message in (headers(end=True), headers(pb.NONE)):
        exchange = Exchange(100)
        assert exchange.take(message) == []
        assert asked(exchange).body == b""
        (only,) = exchange.choose(CHOSEN)
        assert destination(only.request_headers.response) == CHOSEN.addresses == metadata(only)


def test_where_headers_cannot_wait_for_pieces_they_are_chosen_by_alone() -> None:
    exchange = Exchange(100)
    assert exchange.take(headers(pb.STREAMED)) == []
    assert not asked(exchange).is_whole
    (only,) = exchange.choose(CHOSEN)
    assert destination(only.request_headers.response) == CHOSEN.addresses
    (passed,) = exchange.take(body(b"piece"))
    assert passed == pb.ProcessingResponse(request_body=pb.BodyResponse())


def test_where_headers_may_wait_for_pieces_all_of_them_are_chosen_by() -> None:
    exchange = Exchange(100)
    assert exchange.take(headers(pb.STREAMED, delayed=True)) == []
    assert exchange.take(body(b"a", end=False)) == []
    assert exchange.take(body(b"b")) == []
    assert asked(exchange).body == b"ab"
    first, *others = exchange.choose(CHOSEN)
    assert destination(first.request_headers.response) == CHOSEN.addresses
    assert others == [pb.ProcessingResponse(request_body=pb.BodyResponse())] * 2


def sent_on(responses: list[pb.ProcessingResponse]) -> tuple[bytes, list[bool]]:
    pieces = [each.request_body.response.body_mutation.streamed_response for each in responses]
    assert all(len(piece.body) <= PIECE_BYTES for piece in pieces)
    return b"".join(piece.body for piece in pieces), [piece.end_of_stream for piece in pieces]


def test_pieces_in_both_directions_are_sent_on_as_they_were_behind_the_headers() -> None:
    exchange = Exchange(1 << 20)
    assert exchange.take(headers(pb.FULL_DUPLEX_STREAMED)) == []
    content = bytes(range(256)) * 600
    assert exchange.take(body(content[:100_000], end=False)) == []
    assert exchange.take(body(content[100_000:])) == []
    assert asked(exchange).body == content
    first, *others = exchange.choose(CHOSEN)
    assert destination(first.request_headers.response) == CHOSEN.addresses
    passed, ends = sent_on(others)
    assert passed == content
    assert ends[-1]
    assert not any(ends[:-1])


def test_a_body_that_ends_with_trailers_ends_there() -> None:
    exchange = Exchange(100)
    exchange.take(headers(pb.FULL_DUPLEX_STREAMED))
    exchange.take(body(b"{}", end=False))
    assert exchange.take(pb.ProcessingRequest(request_trailers=pb.HttpTrailers())) == []
    assert asked(exchange).body == b"{}"
    _, piece, trailers = exchange.choose(CHOSEN)
    assert sent_on([piece]) == (b"{}", [False])
    assert trailers.WhichOneof("response") == "request_trailers"


def test_an_empty_last_piece_ends_the_body() -> None:
    exchange = Exchange(100)
    exchange.take(headers(pb.FULL_DUPLEX_STREAMED))
    exchange.take(body(b"{}", end=False))
    exchange.take(body(b""))
    _, *others = exchange.choose(CHOSEN)
    assert sent_on(others) == (b"{}", [False, True])


def test_a_body_over_the_limit_is_not_read_and_goes_on_all_the_same() -> None:
    exchange = Exchange(10)
    exchange.take(headers(pb.FULL_DUPLEX_STREAMED))
    exchange.take(body(b"x" * 11, end=False))
    assert asked(exchange) == Asked(PATH, asked(exchange).headers, b"", 11, is_whole=False)
    _, *others = exchange.choose(CHOSEN)
    assert sent_on(others) == (b"x" * 11, [False])
    assert sent_on(exchange.take(body(b"rest"))) == (b"rest", [True])
    whole = Exchange(10)
    whole.take(headers(pb.BUFFERED))
    whole.take(body(b"x" * 11))
    assert not asked(whole).is_whole


def test_a_body_that_a_proxy_cut_is_not_read() -> None:
    exchange = Exchange(100)
    exchange.take(headers(pb.BUFFERED_PARTIAL))
    exchange.take(body(b'{"prompt": "a', end=False))
    assert asked(exchange) == Asked(PATH, asked(exchange).headers, b"", 13, is_whole=False)


@pytest.mark.parametrize("subset", [["10.0.0.1:1", "10.0.0.2:2"], "10.0.0.1:1, 10.0.0.2:2"])
def test_a_subset_is_what_the_proxy_says(subset: object) -> None:
    exchange = Exchange(100)
    exchange.take(headers(end=True, subset=subset))
    assert asked(exchange).subset == frozenset({"10.0.0.1:1", "10.0.0.2:2"})


def test_an_empty_subset_is_not_the_lack_of_one() -> None:
    exchange = Exchange(100)
    exchange.take(headers(end=True, subset=[]))
    assert asked(exchange).subset == frozenset()
    other = Exchange(100)
    other.take(headers(end=True))
    assert asked(other).subset is None


def test_where_nobody_is_picked_what_a_client_set_is_taken_away() -> None:
    exchange = Exchange(100)
    exchange.take(headers(end=True))
    (only,) = exchange.choose(Chosen("", "NO_ENDPOINT"))
    mutation = only.request_headers.response.header_mutation
    assert list(mutation.remove_headers) == ["x-gateway-destination-endpoint"]
    assert not only.HasField("dynamic_metadata")


def test_a_refusal_is_an_answer_503() -> None:
    exchange = Exchange(100)
    exchange.take(headers(end=True))
    (only,) = exchange.choose(Chosen("", "NO_ENDPOINT", is_refused=True))
    assert only.immediate_response.status.code == 503


def test_the_answer_tells_its_status_and_who_served() -> None:
    exchange = Exchange(100)
    exchange.take(headers(end=True))
    exchange.choose(CHOSEN)
    (only,) = exchange.take(status(429, "10.0.0.2:8000"))
    assert exchange.answered == Answered(429, "10.0.0.2:8000")
    assert only == pb.ProcessingResponse(response_headers=pb.HeadersResponse())
    exchange.take(pb.ProcessingRequest(response_body=pb.HttpBody()))
    assert exchange.answered is None


@pytest.mark.parametrize(
    ("served", "replica"),
    [("", "engine-1"), ("10.0.0.1:8000", "engine-1"), ("10.0.0.2:8000", "engine-2"), ("10.0.0.9:1", None)],
)
def test_people_are_shown_the_reason_and_who_served_where_that_is_wanted(
    served: str, replica: str | None
) -> None:
    exchange = Exchange(100, shows_reasons=True)
    exchange.take(headers(end=True))
    exchange.choose(CHOSEN)
    (only,) = exchange.take(status(200, served))
    shown = {
        each.header.key: each.header.raw_value.decode()
        for each in only.response_headers.response.header_mutation.set_headers
    }
    assert shown.pop("x-inferencecache-reason") == "PREFIX_MATCH"
    assert shown.get("x-inferencecache-replica") == replica


def test_a_proxy_that_only_watches_is_not_answered() -> None:
    message = headers(end=True)
    message.observability_mode = True
    exchange = Exchange(100)
    assert exchange.take(message) == []
    assert exchange.asked is None


def test_the_messages_are_the_published_ones() -> None:
    service = pb.DESCRIPTOR.services_by_name["ExternalProcessor"]
    assert service.full_name == "envoy.service.ext_proc.v3.ExternalProcessor"
    requests = {field.name: field.number for field in pb.ProcessingRequest.DESCRIPTOR.fields}
    assert requests == {
        "request_headers": 2,
        "response_headers": 3,
        "request_body": 4,
        "response_body": 5,
        "request_trailers": 6,
        "response_trailers": 7,
        "metadata_context": 8,
        "observability_mode": 10,
        "protocol_config": 11,
    }
