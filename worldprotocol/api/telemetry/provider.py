"""The provider of traces of ``worldctl serve`` and ``worldctl worker``, from the standard variables ``OTEL_*``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from worldprotocol.api.telemetry.context import tracer_provider

__all__ = ["is_wanted", "traces_from_environment"]

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE: Final = "world-protocol"
_LOGGER = logging.getLogger("worldprotocol.telemetry")


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether variables ask for traces: an exporter ``otlp``, or an endpoint, and nothing that disables them."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    if exporter not in ("", "otlp"):
        _LOGGER.warning("OTEL_TRACES_EXPORTER is %r; traces are exported with otlp only, and none are made.", exporter)
        return False
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", ""
    )
    if protocol.strip().lower() not in ("", "http/protobuf"):
        _LOGGER.warning(
            "Traces are exported over http/protobuf, not %s (OTEL_EXPORTER_OTLP_PROTOCOL); none are made.", protocol
        )
        return False
    return exporter == "otlp" or any(environment.get(name) for name in ENDPOINTS)


@contextmanager
def traces_from_environment() -> Iterator[None]:
    """Export traces over OTLP (HTTP) while the block runs, where the environment asks for it.

    A provider that the program has configured is left alone. Where the extra is not installed, a warning says so.
    """
    shutdown = _begin()
    try:
        yield
    finally:
        shutdown()


def _begin() -> Callable[[], None]:
    if not is_wanted(os.environ) or tracer_provider() is not None:
        return _nothing
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        _LOGGER.warning(
            "The environment asks for traces (OTEL_*), and the package %s is missing: "
            "pip install 'world-protocol[telemetry]'. No traces are made.",
            error.name,
        )
        return _nothing
    name = os.environ.get("OTEL_SERVICE_NAME") or SERVICE
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _nothing() -> None:
    """Have nothing to shut down."""
