"""Traces in OpenTelemetry's form, for processes that are told where to send them.

Nothing is made, and the SDK is not imported, unless `OTEL_EXPORTER_OTLP_ENDPOINT` (or
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) is set; the other `OTEL_` variables mean what OpenTelemetry says. A
trace travels between processes as a W3C `traceparent`: in the metadata of gRPC calls, in the headers of the
log's messages and of deltas. Spans carry identities, never what a prompt says, nor the text of an exception.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

from inferencecache.core.service.settings import SettingsParser

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

TRACEPARENT: Final = "traceparent"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_NOTHING: Final[AbstractContextManager[None]] = nullcontext()

Kind = Literal["server", "producer", "consumer"]
Attributes = Mapping[str, str | int]


class Traces:
    """Makes spans that `provider` exports."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - only where traces are made
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._trace = trace
        self._format = TraceContextTextMapPropagator()
        self._tracer = provider.get_tracer("inferencecache")

    @contextmanager
    def span(
        self, name: str, kind: Kind, parent: str, linked: Iterable[str], attributes: Attributes
    ) -> Iterator[None]:
        trace = self._trace
        contexts = [trace.get_current_span(self._read(each)).get_span_context() for each in linked]
        with self._tracer.start_as_current_span(
            name,
            self._read(parent) if parent else None,
            trace.SpanKind[kind.upper()],
            attributes,
            [trace.Link(context) for context in contexts],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException:
                span.set_status(trace.StatusCode.ERROR)
                raise

    def current(self) -> str:
        """The `traceparent` of what is being done now, empty when nothing of it is traced."""
        carrier: dict[str, str] = {}
        self._format.inject(carrier)
        return carrier.get(TRACEPARENT, "")

    def _read(self, parent: str) -> Context:
        return self._format.extract({TRACEPARENT: parent})


_traces: Traces | None = None


def add_tracing_settings(parser: SettingsParser) -> None:
    """Explain in the help how traces are exported, and refuse to start with what cannot be done."""
    with parser.section(
        "traces",
        f"Set {ENDPOINTS[0]}, as in http://collector:4318, to export traces of calls and of what they change "
        "(OTLP over HTTP). OpenTelemetry's other variables apply, such as OTEL_TRACES_SAMPLER.",
    ):
        parser.check(lambda _: _check(parser.environment))


def configure_tracing(service: str, environment: Mapping[str, str] = os.environ) -> None:
    """Export the spans of this process if the environment says where to.

    What waits to be sent is sent when the process ends.
    """
    if not _is_wanted(environment):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = environment.get("OTEL_SERVICE_NAME")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace_by(provider)


def _is_wanted(environment: Mapping[str, str]) -> bool:
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not off and any(environment.get(name) for name in ENDPOINTS)


def _check(environment: Mapping[str, str]) -> None:
    if not _is_wanted(environment):
        return
    for name in _PROTOCOLS:
        if (protocol := environment.get(name) or _PROTOCOL) != _PROTOCOL:
            raise ValueError(f"{name} is {protocol}; write {_PROTOCOL}, which is sent to port 4318 by custom")
    if find_spec("opentelemetry") is None:
        raise ValueError(
            f"{ENDPOINTS[0]} is set and the OpenTelemetry SDK is not there; install "
            "inference-cache-core[tracing], or unset it"
        )


def trace_by(provider: TracerProvider | None) -> None:
    """Let this provider export spans from now on, or nothing."""
    global _traces  # noqa: PLW0603 - a property of the process, like its logs
    _traces = Traces(provider) if provider is not None else None


def is_tracing() -> bool:
    """Are spans exported?"""
    return _traces is not None


def served(name: str, parent: str, attributes: Attributes) -> AbstractContextManager[None]:
    """Answering a call, as a span below its caller's, or of a new trace."""
    return _traces.span(name, "server", parent, (), attributes) if _traces is not None else _NOTHING


def received(name: str, headers: Mapping[str, str], attributes: Attributes) -> AbstractContextManager[None]:
    """Work on a message, as a span if its sender was traced."""
    if _traces is None or not (parent := headers.get(TRACEPARENT, "")):
        return _NOTHING
    return _traces.span(name, "consumer", parent, (), attributes)


def told(name: str, traces: Sequence[str], attributes: Attributes) -> AbstractContextManager[None]:
    """Telling what several traces were about, as a span below the last of them that is linked to all."""
    if _traces is None or not traces:
        return _NOTHING
    return _traces.span(name, "producer", traces[-1], traces, attributes)


def sent(name: str, subject: str) -> AbstractContextManager[None]:
    """Sending a message, as a span if what it belongs to is traced."""
    if _traces is None or not _traces.current():
        return _NOTHING
    attributes = {"messaging.system": "nats", "messaging.destination.name": subject}
    return _traces.span(name, "producer", "", (), attributes)


def current_trace() -> str:
    """The `traceparent` to send with a message, empty for none."""
    return _traces.current() if _traces is not None else ""


class Carried:
    """Traces of what was folded and is to be told; the oldest of too many go."""

    def __init__(self, most: int = 32) -> None:
        self._parents: deque[str] = deque(maxlen=most)

    def note(self) -> None:
        """What is being done now will be told."""
        if parent := current_trace():
            self._parents.append(parent)

    def take(self) -> list[str]:
        """All of them, oldest first; none is left."""
        taken = list(self._parents)
        self._parents.clear()
        return taken
