"""An OTLP receiver of the tests: a small HTTP server that decodes the traces it gets."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Received:
    """One span, as it was received.

    Args:
        name: its name.
        trace_id: the trace, in hexadecimal.
        span_id: the span.
        parent_id: its parent; empty for a root.
        attributes: its attributes.
        service: the service of its resource.
        is_error: whether its status is an error.
        links: the traces that it links to.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    service: str
    is_error: bool
    links: list[str] = field(default_factory=list)


@dataclass
class Collector:
    """A running receiver.

    Args:
        url: what ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set to.
    """

    url: str
    spans: list[Received] = field(default_factory=list)

    def named(self, name: str) -> list[Received]:
        """Return the received spans of a name."""
        return [one for one in self.spans if one.name == name]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _read(body: bytes) -> Iterator[Received]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        about = {one.key: _value(one.value) for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    {one.key: _value(one.value) for one in span.attributes},
                    about["service.name"],
                    span.status.code == 2,
                    [one.trace_id.hex() for one in span.links],
                )


@contextmanager
def collecting() -> Iterator[Collector]:
    """Receive traces on a free port while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.spans += _read(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
