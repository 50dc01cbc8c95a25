"""Spans are made where traces are exported, below what the message or the call carries, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from inferencecache.core.service import SettingsParser, add_tracing_settings, configure_tracing, tracing
from tests.support.traces import kept_spans

TRACE, CALLER = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT = f"00-{TRACE:032x}-{CALLER:016x}-01"
HEADERS = {tracing.TRACEPARENT: PARENT}


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    with kept_spans() as exporter:
        yield exporter


def test_without_a_provider_nothing_is_carried_and_nothing_is_made() -> None:
    carried = tracing.Carried()
    with tracing.served("call", PARENT, {}), tracing.received("fold", HEADERS, {}), tracing.sent("a", "b"):
        carried.note()
        assert tracing.current_trace() == ""
    assert carried.take() == []
    assert not tracing.is_tracing()


def test_a_call_is_below_its_callers_span_and_what_it_sends_below_the_call(
    exported: InMemorySpanExporter,
) -> None:
    with tracing.served("call", PARENT, {"rpc.method": "M"}), tracing.sent("publish", "subject"):
        sent = tracing.current_trace()
    publish, call = exported.get_finished_spans()
    assert call.context is not None
    assert publish.context is not None
    assert call.parent is not None
    assert publish.parent is not None
    assert (call.parent.trace_id, call.parent.span_id) == (TRACE, CALLER)
    assert publish.parent.span_id == call.context.span_id
    assert sent == f"00-{TRACE:032x}-{publish.context.span_id:016x}-01"
    assert call.attributes == {"rpc.method": "M"}


def test_a_caller_that_traces_nothing_begins_a_trace_and_a_message_does_not(
    exported: InMemorySpanExporter,
) -> None:
    with tracing.received("fold", {}, {}), tracing.sent("publish", "subject"):
        assert tracing.current_trace() == ""
    with tracing.served("call", "", {}):
        assert tracing.current_trace()
    [call] = exported.get_finished_spans()
    assert call.parent is None


def test_what_is_told_continues_the_last_trace_and_is_linked_to_all(exported: InMemorySpanExporter) -> None:
    carried = tracing.Carried(most=2)
    for number in (1, 2, 3):
        headers = {tracing.TRACEPARENT: f"00-{number:032x}-{CALLER:016x}-01"}
        with tracing.received("fold", headers, {}):
            carried.note()
    with tracing.told("tell", carried.take(), {}):
        pass
    told = exported.get_finished_spans()[-1]
    assert told.parent is not None
    assert told.parent.trace_id == 3
    assert [link.context.trace_id for link in told.links] == [2, 3]
    assert carried.take() == []


def test_a_failure_is_marked_and_its_text_is_not_exported(exported: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="secret"), tracing.served("call", PARENT, {}):
        raise ValueError("secret prompt")
    [span] = exported.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.to_json()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "True"},
    ],
)
def test_without_an_endpoint_or_with_the_sdk_switched_off_nothing_is_exported(
    environment: dict[str, str],
) -> None:
    configure_tracing("router", environment)
    assert not tracing.is_tracing()


def test_another_protocol_is_refused_with_the_variables_name(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    parser = SettingsParser("program", "", environment=environment)
    add_tracing_settings(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([])
    assert ended.value.code == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is grpc; write http/protobuf" in capsys.readouterr().err


def test_the_help_says_how_to_trace(capsys: pytest.CaptureFixture[str]) -> None:
    parser = SettingsParser("program", "", environment={})
    add_tracing_settings(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in capsys.readouterr().out
