"""A collector that keeps what it is sent."""

from __future__ import annotations

from typing import NamedTuple, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Span(NamedTuple):
    """As it came; ids in hexadecimal, `parent` empty for the first of a trace."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, str]


class Collector:
    """Listens inside `async with`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0]
        return f"http://{host}:{port}"

    def of_trace(self, trace: str) -> list[Span]:
        return [span for span in self.spans if span.trace == trace]

    async def _take(self, request: web.Request) -> web.Response:
        for resource_spans in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            of_process = {each.key: each.value.string_value for each in resource_spans.resource.attributes}
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    attributes = {each.key: each.value.string_value for each in span.attributes}
                    self.spans.append(
                        Span(
                            of_process["service.name"],
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            attributes,
                        )
                    )
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )
